//! Links: inputs from which the host builds one image, which the program receives and may load.

use std::ffi::{c_uint, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use vgpu_abi::{CUresult, log};
use vgpu_wire::Span;
use vgpu_wire::area::REPLY_DATA_MAX;
use vgpu_wire::body::link::{
    INPUT_CUBIN, INPUT_FATBINARY, INPUT_LIBRARY, INPUT_NAME_MOST, INPUT_PTX, LINK_DEBUG, LINK_LINES,
    LinkClose, LinkComplete, LinkData, LinkInput, LinkOpen, LinkRead, LinkReply,
};
use vgpu_wire::body::module::IMAGE_PTX;
use vgpu_wire::facts::exec;

use crate::Result;
use crate::code::image::Image;
use crate::code::jit_log::JitLogs;
use crate::code::refusal;
use crate::object::context::Context;
use crate::object::gpu::Gpu;
use crate::object::module;
use crate::ptx;
use crate::queue::submission::Minted;
use crate::slab::Slab;
use crate::sync::Mutex;

/// Length in bytes of the pieces in which an input is sent, the same as for a module's image.
const PIECE: usize = 48 << 10;
/// Maximum length in bytes of an image that is accepted from a host.
const IMAGE_MOST: u64 = 1 << 30;
/// `CU_JIT_NUM_INPUT_TYPES`, the number of kinds of inputs.
const INPUT_KINDS: c_uint = 6;

/// `CUjit_option`, the ids of the options that are sent to the host.
mod id {
    use std::ffi::c_uint;

    pub(super) const MAX_REGISTERS: c_uint = 0;
    pub(super) const THREADS_PER_BLOCK: c_uint = 1;
    pub(super) const OPTIMIZATION_LEVEL: c_uint = 7;
    pub(super) const TARGET: c_uint = 9;
    pub(super) const GENERATE_DEBUG_INFO: c_uint = 11;
    pub(super) const GENERATE_LINE_INFO: c_uint = 13;
}

/// Options that a program gives the compiler.
#[derive(Clone, Copy, Debug, Default)]
pub struct LinkOptions {
    flags: u32,
    max_registers: u32,
    threads_per_block: u32,
    optimization: Option<u32>,
    target: u32,
}

impl LinkOptions {
    /// Reads the options that are sent to the host. Other options are ignored.
    ///
    /// # Safety
    /// `values` has a value for each of the options, of the type that the manual says, or is null if there
    /// are none.
    pub unsafe fn from_options(options: &[c_uint], values: *mut *mut c_void) -> Result<Self> {
        let mut found = Self::default();
        if values.is_null() && !options.is_empty() {
            return Err(CUresult::INVALID_VALUE);
        }
        for (index, &option) in options.iter().enumerate() {
            // SAFETY: upheld by the caller.
            let place = unsafe { values.add(index) };
            // SAFETY: upheld by the caller. The value is an unsigned int, in the low half.
            let value = unsafe { place.read() }.addr() as u32;
            match option {
                id::MAX_REGISTERS => found.max_registers = value,
                id::THREADS_PER_BLOCK => found.threads_per_block = value,
                id::OPTIMIZATION_LEVEL => found.optimization = Some(value.min(4)),
                // Above 0xffff are marks of code for one architecture alone.
                id::TARGET => found.target = value & 0xffff,
                id::GENERATE_DEBUG_INFO if value != 0 => found.flags |= LINK_DEBUG,
                id::GENERATE_LINE_INFO if value != 0 => found.flags |= LINK_LINES,
                _ => {}
            }
        }
        Ok(found)
    }
}

/// A link of a program, until it is destroyed.
#[derive(Default)]
pub struct Link {
    gpu: AtomicPtr<Gpu>,
    inner: Mutex<Option<Inner>>,
}

struct Inner {
    /// Number of the link in messages.
    number: u32,
    logs: JitLogs,
    /// The linked image, and its length in bytes. PTX ends with a zero, which the length counts.
    image: Option<(Box<[u8]>, usize)>,
}

static LINKS: Slab<Link> = Slab::new(12);

/// Starts a link in a context.
pub fn create(context: &Context, options: &LinkOptions, logs: JitLogs) -> Result<usize> {
    let gpu = context.gpu();
    gpu.needs(exec::LINKS, "links (cuLinkCreate)")?;
    gpu.queue.async_error()?;
    let number = gpu.queue.mint(Minted::Link);
    let message = LinkOpen {
        reply: 0,
        link: number,
        flags: options.flags,
        max_registers: options.max_registers,
        threads_per_block: options.threads_per_block,
        optimization: options.optimization.unwrap_or(4),
        target: options.target,
        reserved: 0,
    };
    gpu.queue.call(message, &[], &mut [])?;
    let made = LINKS.insert(|_, link| {
        link.gpu.store(ptr::from_ref(gpu).cast_mut(), Ordering::Relaxed);
        *link.inner.lock() = Some(Inner { number, logs, image: None });
    });
    if let Some((handle, _)) = made {
        return Ok(handle);
    }
    gpu.queue.send(&LinkClose { link: number, reserved: 0 }, &[])?;
    Err(CUresult::OUT_OF_MEMORY)
}

/// Returns the link of a handle.
pub fn get(handle: usize) -> Result<&'static Link> {
    LINKS.get(handle).ok_or(CUresult::INVALID_HANDLE)
}

/// Ends a link and frees its image.
pub fn destroy(handle: usize) -> Result {
    let ended = LINKS.remove(handle, |link| {
        let Some(inner) = link.inner.lock().take() else { return Ok(()) };
        link.gpu().queue.send(&LinkClose { link: inner.number, reserved: 0 }, &[]).map(drop)
    });
    ended.ok_or(CUresult::INVALID_HANDLE)?
}

impl Link {
    /// Returns the device on which the link was started.
    fn gpu(&self) -> &'static Gpu {
        // SAFETY: `create` stored the address of a leaked value before the handle meant anything.
        unsafe { &*self.gpu.load(Ordering::Relaxed) }
    }

    /// Adds an input and sends it at once. An input that is evidently not of its kind is refused here; other
    /// errors are found when the link is completed.
    pub fn add(&self, kind: c_uint, data: &[u8], name: &[u8]) -> Result {
        let mut inner = self.inner.lock();
        let inner = inner.as_mut().ok_or(CUresult::INVALID_HANDLE)?;
        if inner.image.is_some() || data.is_empty() || kind >= INPUT_KINDS {
            return Err(CUresult::INVALID_VALUE);
        }
        refusal::take_last();
        let added = send(self.gpu(), inner.number, kind, data, name);
        if added.is_err() {
            inner.logs.store(&added, "");
        }
        added
    }

    /// Links the inputs and fetches the image. Returns its address, valid until the link is destroyed, and
    /// its length.
    pub fn complete(&self) -> Result<(*const u8, usize)> {
        let mut inner = self.inner.lock();
        let inner = inner.as_mut().ok_or(CUresult::INVALID_HANDLE)?;
        if inner.image.is_none() {
            refusal::take_last();
            let fetched = fetch(self.gpu(), inner.number);
            inner.logs.store(&fetched, "linked by the device's host");
            inner.image = Some(fetched?);
        }
        let (bytes, length) = inner.image.as_ref().ok_or(CUresult::UNKNOWN)?;
        Ok((bytes.as_ptr(), *length))
    }
}

/// Sends an input. For a device that accepts no compiled code, only the matching part of a fat binary is
/// sent.
fn send(gpu: &Gpu, link: u32, kind: c_uint, data: &[u8], name: &[u8]) -> Result {
    let target = module::target(gpu);
    match kind {
        INPUT_PTX => {
            // A text may come with its zero, and may end before the size that is given.
            let text = data.split(|&byte| byte == 0).next().unwrap_or_default();
            ptx::outline(text).map_err(|error| {
                refusal::report(format_args!("an input of a link is refused: {error}"));
                CUresult::INVALID_PTX
            })?;
            send_as(gpu, link, INPUT_PTX, text, name)
        }
        INPUT_FATBINARY if target.abilities & exec::CUBIN == 0 => {
            let code = Image::of_file(data)?.choose(target)?;
            send_as(gpu, link, INPUT_PTX, &code.bytes()?, name)
        }
        INPUT_CUBIN..=INPUT_LIBRARY if target.abilities & exec::CUBIN != 0 => {
            send_as(gpu, link, kind, data, name)
        }
        INPUT_CUBIN..=INPUT_LIBRARY => {
            refusal::report(format_args!(
                "an input of a link is refused: compiled code cannot run here; PTX is needed"
            ));
            Err(CUresult::NO_BINARY_FOR_GPU)
        }
        _ => {
            refusal::report(format_args!("an input of a link is refused: kind {kind} is not supported"));
            Err(CUresult::NOT_SUPPORTED)
        }
    }
}

fn send_as(gpu: &Gpu, link: u32, kind: u32, data: &[u8], name: &[u8]) -> Result {
    let name = &name[..name.len().min(INPUT_NAME_MOST as usize)];
    let bytes = data.len() as u64;
    let input = LinkInput { link, kind, name_bytes: name.len() as u32, reserved: 0, bytes };
    gpu.queue.send(&input, &[name])?;
    for (index, piece) in data.chunks(PIECE).enumerate() {
        let (offset, data) = ((index * PIECE) as u64, Span::inline(piece.len() as u64));
        gpu.queue.send(&LinkData { link, reserved: 0, offset, data }, &[piece])?;
    }
    Ok(())
}

/// Makes the host link the inputs, and reads the image.
fn fetch(gpu: &Gpu, link: u32) -> Result<(Box<[u8]>, usize)> {
    let LinkReply { image, bytes, .. } = gpu.queue.ask(LinkComplete { reply: 0, link }, &[])?;
    if bytes == 0 || bytes > IMAGE_MOST {
        log::error(format_args!("device {}: a linked image of {bytes} bytes", gpu.index));
        return Err(CUresult::UNKNOWN);
    }
    // PTX ends with a zero, for programs that treat it as a C string, and its length counts that.
    let length = bytes as usize + usize::from(image == IMAGE_PTX);
    let mut fetched = Vec::new();
    fetched.try_reserve_exact(length).map_err(|_| CUresult::OUT_OF_MEMORY)?;
    fetched.resize(length, 0);
    let mut read = 0;
    while read < bytes as usize {
        let rest = &mut fetched[read..bytes as usize];
        let room = rest.len().min(REPLY_DATA_MAX as usize);
        let got = gpu.queue.call(LinkRead { reply: 0, link, offset: read as u64 }, &[], &mut rest[..room])?;
        if got == 0 || got > room {
            log::error(format_args!(
                "device {}: a linked image ends after {read} of {bytes} bytes",
                gpu.index
            ));
            return Err(CUresult::UNKNOWN);
        }
        read += got;
    }
    Ok((fetched.into_boxed_slice(), length))
}
