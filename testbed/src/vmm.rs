//! A play of a VMM: it connects to a vfio-user socket as QEMU does, once, and shows the device to guests of this
//! process on a simulated bus. Each of their accesses to a register is a message on the connection. The window is
//! a link to the memory of the device's process, which programs of a launcher do not follow.
//!
//! Like QEMU it takes a reply that it does not expect for a message without payload, and a read that fails for
//! all ones.

use std::fs::File;
use std::io::{IoSlice, IoSliceMut, Read as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use tempfile::TempDir;
use vgpu_device::{Bar, BusDevice, DeviceStatus, SimBus, SimFunction};
use vgpu_vfio_user::frame::{Access, Command, DmaMap, HEADER_BYTES, Header, RegionInfo, Version};
use vgpu_wire::pci::{PciAddress, V2_BAR0_BYTES};
use vgpu_wire::registers as reg;
use zerocopy::{FromBytes as _, IntoBytes as _};

/// Time for which QEMU waits for an answer, with the arguments that `vgpu-device` prints.
const ANSWER_MOST: Duration = Duration::from_mins(1);
/// Interval at which the connection is looked at.
const LOOK: Duration = Duration::from_millis(50);
/// Index of the region that is the configuration space.
const CONFIG: u32 = 7;
/// Size of the configuration space in bytes.
const CONFIG_BYTES: u32 = 256;
/// Address of the device on the bus.
const ADDRESS: &str = "0000:00:04.0";
/// Memory of the machine below and above 4 GiB, which is one file, and a second file behind it.
const LOW: u64 = 16 << 20;
const HIGH: u64 = 8 << 20;
const OTHER: u64 = 4 << 20;
const ABOVE_4G: u64 = 1 << 32;

/// The connection, which carries one message at a time.
#[derive(Debug)]
struct Connection {
    stream: UnixStream,
    next: u16,
}

/// What the connection has carried.
#[derive(Debug, Default)]
struct Counts {
    /// Requests without an answer by now.
    pending: AtomicU64,
    answered: AtomicU64,
    /// Requests that were answered by an error.
    refused: AtomicU64,
    /// Replies that were not expected.
    stale: AtomicU64,
    /// Violations of the protocol, after which nothing is sent.
    broken: AtomicU64,
}

/// A reply: its errno, its payload, and its descriptors.
struct Reply {
    error: u32,
    payload: Vec<u8>,
    files: Vec<OwnedFd>,
}

/// The other end of the connection, as the bus's registers use it.
#[derive(Debug)]
struct Remote {
    connection: Mutex<Connection>,
    counts: Counts,
}

impl Remote {
    /// Sends a request and waits for its reply.
    fn ask(&self, command: Command, payload: &[u8], files: &[BorrowedFd<'_>]) -> Result<Reply> {
        let mut connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        ensure!(self.counts.broken.load(Ordering::Relaxed) == 0, "the connection is broken");
        self.counts.pending.store(1, Ordering::SeqCst);
        let reply = connection.ask(command, payload, files, &self.counts);
        self.counts.pending.store(0, Ordering::SeqCst);
        match &reply {
            Ok(Reply { error: 0, .. }) => &self.counts.answered,
            Ok(_) => &self.counts.refused,
            Err(_) => &self.counts.broken,
        }
        .fetch_add(1, Ordering::SeqCst);
        reply
    }

    /// Sends a request that must succeed.
    fn must(&self, command: Command, payload: &[u8], files: &[BorrowedFd<'_>]) -> Result<Reply> {
        let reply = self.ask(command, payload, files)?;
        ensure!(reply.error == 0, "{command} was answered by error {}", reply.error);
        Ok(reply)
    }
}

impl Connection {
    fn ask(
        &mut self,
        command: Command,
        payload: &[u8],
        files: &[BorrowedFd<'_>],
        counts: &Counts,
    ) -> Result<Reply> {
        let id = self.next;
        self.next = self.next.wrapping_add(1);
        let bytes = (HEADER_BYTES + payload.len()) as u32;
        let header = Header { id, command, bytes, flags: 0, error: 0 };
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() {
            ensure!(control.push(SendAncillaryMessage::ScmRights(files)), "too many descriptors");
        }
        let message = [header.as_bytes(), payload].concat();
        let sent = sendmsg(&self.stream, &[IoSlice::new(&message)], &mut control, SendFlags::NOSIGNAL)?;
        ensure!(sent == message.len(), "a part of a request was sent");
        loop {
            let (header, reply) = self.receive()?;
            if (header.id, header.command) == (id, command) {
                return Ok(reply);
            }
            ensure!(reply.payload.is_empty(), "a reply to another request has a payload: {header:?}");
            counts.stale.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn receive(&mut self) -> Result<(Header, Reply)> {
        let mut bytes = [0; HEADER_BYTES];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let read =
            recvmsg(&self.stream, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
        let mut files = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                files.extend(rights);
            }
        }
        ensure!(read.bytes > 0, "the connection was closed");
        self.stream.read_exact(&mut bytes[read.bytes..])?;
        let header = Header::read_from_bytes(&bytes).ok().context("no header")?;
        let length = (header.bytes as usize).checked_sub(HEADER_BYTES).context("a size")?;
        let mut payload = vec![0; length];
        self.stream.read_exact(&mut payload)?;
        Ok((header, Reply { error: header.error, payload, files }))
    }
}

/// BAR0 of the device, as the bus serves it.
#[derive(Debug)]
struct Registers {
    remote: Arc<Remote>,
    packets: Mutex<()>,
}

/// A BAR whose socket is replaced or removed.
#[derive(Debug)]
struct NoBar;

/// Returns the address of the device on the bus.
#[must_use]
pub fn address() -> PciAddress {
    PciAddress { domain: 0, bus: 0, device: 4, function: 0 }
}

impl Bar for Registers {
    fn address(&self) -> PciAddress {
        address()
    }

    fn read(&self, offset: u32) -> u32 {
        let access = Access { offset: offset.into(), region: 0, count: 4 };
        let reply = self.remote.ask(Command::REGION_READ, access.as_bytes(), &[]);
        let value = reply.ok().and_then(|reply| Some(u32::from_le_bytes(*reply.payload.last_chunk()?)));
        value.unwrap_or(u32::MAX)
    }

    fn write(&self, offset: u32, value: u32) {
        let access = Access { offset: offset.into(), region: 0, count: 4 };
        let payload = [access.as_bytes(), &value.to_le_bytes()].concat();
        // A guest does not learn of it.
        let _ = self.remote.ask(Command::REGION_WRITE, &payload, &[]);
    }

    fn packets(&self) -> Option<&Mutex<()>> {
        Some(&self.packets)
    }
}

impl Bar for NoBar {
    fn address(&self) -> PciAddress {
        address()
    }

    fn read(&self, _offset: u32) -> u32 {
        u32::MAX
    }

    fn write(&self, _offset: u32, _value: u32) {}
}

/// The device on the bus, of which only its own process knows the state.
#[derive(Debug)]
struct Shown;

impl BusDevice for Shown {
    fn address(&self) -> PciAddress {
        address()
    }

    fn status(&self) -> DeviceStatus {
        DeviceStatus {
            address: ADDRESS.to_owned(),
            executor: "vfio-user".to_owned(),
            generation: 0,
            total: 0,
            allocated: 0,
            charged_bytes: 0,
            kept_image_bytes: 0,
            workers_started: None,
            workers_running: None,
            contexts: 0,
            context_bytes: 0,
            sessions: Vec::new(),
            free_channels: 0,
            accesses: None,
            longest_access_us: 0,
            longest_attach_us: 0,
        }
    }

    fn hold(&self) {}

    fn release(&self) {}

    fn end_sessions(&self) {}
}

/// A machine with the device, until the value is dropped.
#[derive(Debug)]
pub struct Vmm {
    remote: Arc<Remote>,
    /// Memory of the window, of which the bus shows the descriptor.
    _window: OwnedFd,
    _memory: [OwnedFd; 2],
    bus: SimBus,
    _folder: TempDir,
}

impl Vmm {
    /// Connects to a socket, and does what QEMU and a guest's kernel do until programs can use the device.
    ///
    /// # Errors
    /// Fails if the device does not answer as it has to.
    pub fn connect(socket: &Path) -> Result<Self> {
        let stream = UnixStream::connect(socket).context("connect to the device")?;
        stream.set_read_timeout(Some(ANSWER_MOST))?;
        let connection = Mutex::new(Connection { stream, next: 1 });
        let remote = Arc::new(Remote { connection, counts: Counts::default() });
        let version = Version { major: 0, minor: 0 };
        remote.must(Command::VERSION, &[version.as_bytes(), b"{}\0"].concat(), &[])?;
        let window = remote.window()?;
        let memory = ["memory", "more-memory"].map(|name| memfd_create(name, MemfdFlags::CLOEXEC));
        let [memory, more] = memory;
        let (memory, more) = (memory?, more?);
        rustix::fs::ftruncate(&memory, LOW + HIGH)?;
        rustix::fs::ftruncate(&more, OTHER)?;
        for (file, offset, address, bytes) in
            [(&memory, 0, 0, LOW), (&memory, LOW, ABOVE_4G, HIGH), (&more, 0, ABOVE_4G + HIGH, OTHER)]
        {
            let map = DmaMap { argsz: 32, flags: 3, offset, address, bytes };
            remote.must(Command::DMA_MAP, map.as_bytes(), &[file.as_fd()])?;
        }
        // Memory decoding and bus mastering, and the addresses of the BARs.
        for (offset, value) in
            [(0x10, 0xfe00_0000), (0x18, 0x0000_0000), (0x1c, 0x0000_0080), (4, 0x0000_0006)]
        {
            let access = Access { offset, region: CONFIG, count: 4 };
            let payload = [access.as_bytes(), &u32::to_le_bytes(value)].concat();
            remote.must(Command::REGION_WRITE, &payload, &[])?;
        }

        let folder = TempDir::with_prefix_in("vgpu-vmm-", "/dev/shm").context("make a folder in /dev/shm")?;
        let bytes = File::from(window.try_clone()?).metadata()?.len();
        let make = |(): &(), _| {
            let registers = Registers { remote: Arc::clone(&remote), packets: Mutex::default() };
            let bars: Vec<(u64, Arc<dyn Bar>)> =
                vec![(V2_BAR0_BYTES, Arc::new(registers)), (0, Arc::new(NoBar)), (bytes, Arc::new(NoBar))];
            Ok(SimFunction { device: Arc::new(Shown), bars })
        };
        let bus = SimBus::serve_functions(folder.path(), None, vec![()], |()| address(), make)?;
        let function = bus.folder().join("bus/pci/devices").join(ADDRESS);
        // The window is memory, and there is no BAR1.
        std::fs::remove_file(function.join("resource1"))?;
        std::fs::remove_file(function.join("resource2"))?;
        let shown = format!("/proc/{}/fd/{}", std::process::id(), window.as_raw_fd());
        symlink(shown, function.join("resource2"))?;
        Ok(Self { remote, _window: window, _memory: [memory, more], bus, _folder: folder })
    }

    /// Returns the directory that imitates sysfs.
    #[must_use]
    pub fn sysfs(&self) -> &Path {
        self.bus.folder()
    }

    /// Returns the configuration space as the device has it.
    ///
    /// # Errors
    /// Fails if the connection is broken.
    pub fn config(&self) -> Result<Vec<u8>> {
        let access = Access { offset: 0, region: CONFIG, count: CONFIG_BYTES };
        let reply = self.remote.must(Command::REGION_READ, access.as_bytes(), &[])?;
        Ok(reply.payload[size_of::<Access>()..].to_vec())
    }

    /// Reads a register.
    ///
    /// # Errors
    /// Fails if the connection is broken, or the read is refused.
    pub fn register(&self, offset: u32) -> Result<u32> {
        let access = Access { offset: offset.into(), region: 0, count: 4 };
        let reply = self.remote.must(Command::REGION_READ, access.as_bytes(), &[])?;
        Ok(u32::from_le_bytes(*reply.payload.last_chunk().context("a short reply")?))
    }

    /// Waits for the end of the connection, and returns whether it came without a reset, which ends QEMU.
    ///
    /// # Errors
    /// Fails if it does not come.
    pub fn is_closed_in_order(&self) -> Result<bool> {
        let mut connection = self.remote.connection.lock().unwrap_or_else(PoisonError::into_inner);
        match connection.stream.read(&mut [0]) {
            Ok(0) => Ok(true),
            Ok(_) => bail!("there is a reply"),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns whether a request has no answer yet.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.remote.counts.pending.load(Ordering::SeqCst) != 0
    }

    /// Returns the numbers of requests that were answered, of those that were refused, and of replies that were
    /// not expected.
    ///
    /// # Errors
    /// Fails if the connection is broken.
    pub fn counts(&self) -> Result<[u64; 3]> {
        let Counts { answered, refused, stale, broken, .. } = &self.remote.counts;
        let [answered, refused, stale, broken] =
            [answered, refused, stale, broken].map(|count| count.load(Ordering::SeqCst));
        if broken != 0 {
            bail!("the connection is broken");
        }
        Ok([answered, refused, stale])
    }
}

impl Remote {
    /// Asks for the memory of the window.
    fn window(&self) -> Result<OwnedFd> {
        let info = RegionInfo { argsz: 128, flags: 0, index: 2, cap_offset: 0, size: 0, offset: 0 };
        let mut reply = self.must(Command::DEVICE_GET_REGION_INFO, info.as_bytes(), &[])?;
        reply.files.pop().context("the window has no memory")
    }
}

/// Plays a VMM for as long as its connection is in order. Prints the generation of the device each time that it
/// is another one.
///
/// # Errors
/// Fails if the device does not answer as it has to.
pub fn run_vmm(socket: &Path) -> Result<()> {
    let vmm = Vmm::connect(socket)?;
    let config = vmm.config()?;
    let mut generation = 0;
    loop {
        // A read of the moment of a death is refused.
        let now = vmm.register(reg::V2_GENERATION).unwrap_or(generation);
        if std::mem::replace(&mut generation, now) != now {
            println!("generation {now}");
        }
        std::thread::sleep(LOOK);
        vmm.counts()?;
        if vmm.config().is_ok_and(|now| now != config) {
            bail!("the configuration space has changed");
        }
    }
}
