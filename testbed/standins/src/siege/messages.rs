//! A hostile client without CUDA. It attaches as the libraries do, then sends messages with random bodies and
//! writes random bytes to memory that the host reads.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::process::ExitCode;
use std::ptr::null_mut;

use anyhow::{Context, Result, bail};
use rand::{Rng, RngExt};
use vgpu_transport::{Device, PciFunction, Session, scan, sysfs_root};
use vgpu_wire::body::{
    copy, gemm, graph, launch, link, matmul, memory, module, pages, session, stream, vector,
};
use vgpu_wire::{Payload, area};
use zerocopy::FromBytes;

use super::tell::{Outcomes, begun};

/// Maximum number of messages of one session, which the host normally ends earlier.
const MESSAGES: u32 = 5000;
/// Status `CUDA_ERROR_UNKNOWN`, which calls of an ended session return.
const ENDED: i32 = 999;

/// Attaches and sends messages, in an endless loop.
pub fn attack() -> Result<ExitCode> {
    let mut outcomes = Outcomes::default();
    let mut rng = rand::rng();
    begun()?;
    loop {
        let function = scan(&sysfs_root())?.into_iter().next().context("find a device")?;
        let own = Session::attach(Device::open(&function, None)?)?;
        let ring = Area::map(&function, own.channel())?;
        let mut sent = 0;
        while sent < MESSAGES && one(&own, &mut rng).is_ok() {
            sent += 1;
            if rng.random_range(0..64) == 0 {
                ring.scribble(&mut rng);
            }
        }
        outcomes.note("send", if sent < MESSAGES { ENDED } else { 0 })?;
        own.close();
    }
}

/// Sends one message of a random kind with a random body.
fn one(to: &Session, rng: &mut impl Rng) -> Result<()> {
    macro_rules! any_of {
        ($($ty:path),* $(,)?) => {{
            let kinds: &[fn(&Session, &[u8; 512], &[u8]) -> Result<()>] = &[$(send::<$ty>),*];
            kinds[rng.random_range(0..kinds.len())]
        }};
    }
    let kind = any_of![
        session::Echo,
        session::WindowAlloc,
        session::WindowFree,
        pages::PagesRegister,
        memory::MemAlloc,
        memory::MemFree,
        memory::MemInfo,
        memory::MemAllocAsync,
        memory::MemFreeAsync,
        memory::MemReserve,
        memory::MemUnreserve,
        memory::MemCreate,
        memory::MemRelease,
        memory::MemMap,
        memory::MemUnmap,
        memory::MemSetAccess,
        copy::CopyIn,
        copy::CopyOut,
        copy::CopyDevice,
        copy::CopyRows,
        copy::Fill,
        module::ModuleOpen,
        module::ModuleLoad,
        module::ModuleUnload,
        module::FunctionGet,
        module::Occupancy,
        launch::Launch,
        stream::StreamCreate,
        stream::StreamDestroy,
        stream::StreamWait,
        stream::Signal,
        stream::Join,
        stream::EventDestroy,
        graph::GraphDefine,
        graph::GraphLaunch,
        gemm::Gemm,
        gemm::TriangularSolve,
        matmul::MatmulLt,
        vector::VectorOp,
        link::LinkOpen,
        link::LinkInput,
        link::LinkData,
        link::LinkComplete,
        link::LinkRead,
        link::LinkClose,
    ];
    let mut body = [0; 512];
    // Zeros and small numbers are more likely to mean something.
    for word in body.chunks_exact_mut(4) {
        let value: u32 = match rng.random_range(0..8) {
            0..5 => 0,
            5 | 6 => rng.random_range(0..8),
            _ => rng.random(),
        };
        word.copy_from_slice(&value.to_le_bytes());
    }
    let mut tail = vec![0; rng.random_range(0..64)];
    rng.fill_bytes(&mut tail);
    kind(to, &body, &tail)
}

fn send<P: Payload + FromBytes>(to: &Session, body: &[u8; 512], tail: &[u8]) -> Result<()> {
    let (body, _) = P::read_from_prefix(body).ok().context("a body longer than all")?;
    to.send(&body, &[tail])?;
    Ok(())
}

/// A second mapping of the guest's part of the channel's area.
struct Area {
    start: *mut u8,
}

impl Area {
    fn map(function: &PciFunction, channel: u32) -> Result<Self> {
        let path = function.dir.join("resource2");
        let file = File::options().read(true).write(true).open(&path).context("open the window")?;
        let at = u64::from(channel) * area::AREA_BYTES;
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let start = unsafe {
            libc::mmap(
                null_mut(),
                area::AREA_BYTES as usize,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                at as libc::off_t,
            )
        };
        if start == libc::MAP_FAILED {
            bail!("map the window: {}", std::io::Error::last_os_error());
        }
        Ok(Self { start: start.cast() })
    }

    /// Writes a few random bytes to the ring, or to the page with the ring's fill level.
    fn scribble(&self, rng: &mut impl Rng) {
        for _ in 0..rng.random_range(1..64) {
            let at = match rng.random_range(0..4) {
                0 => area::SUBMIT + rng.random_range(0..0x80),
                _ => area::RING + rng.random_range(0..area::RING_BYTES),
            };
            // SAFETY: within the mapping, which is `AREA_BYTES` long.
            let byte = unsafe { self.start.add(at as usize) };
            // SAFETY: mapped for writing; the host, which reads it too, is another process.
            unsafe { byte.write_volatile(rng.random()) };
        }
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: the whole of the mapping made in `map`, which nothing refers to any more.
        unsafe { libc::munmap(self.start.cast(), area::AREA_BYTES as usize) };
    }
}
