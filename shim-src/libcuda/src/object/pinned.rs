//! Pinned host memory. It lies in the window, where the host reads and writes it without a copy. While the
//! window is full, for a few bytes, and where the processor reads the window much more slowly than memory, it
//! is ordinary memory, which is copied like any other.
//!
//! Three features are refused, and attributes say so. The program's own memory cannot be registered: its
//! pages could be given to the host only by their physical addresses, which the kernel tells only root.
//! Kernels cannot access host memory (no mapped pinned memory): a device address is the executor's own
//! number, and the window has none. And there is no managed memory: what guest and kernels access by one
//! address would have to stay in the window, which is hundreds of times smaller than what programs allocate
//! as managed, and the guest would need addresses in it that are free on the host's side too.

use std::collections::BTreeMap;
use std::ffi::{c_uint, c_void};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

use vgpu_abi::CUresult;
use vgpu_abi::driver::{HOST_ALLOC_DEVICE_MAP, HOST_ALLOC_PORTABLE, HOST_ALLOC_WRITE_COMBINED};
use vgpu_transport::WindowMemory;

use crate::Result;
use crate::arg::Out;
use crate::object::gpu::Gpu;
use crate::object::memory::next_id;
use crate::object::{capture, current};
use crate::pinned_ranges;
use crate::sync::RwLock;

/// Minimum size in bytes of an allocation in the window. Smaller ones are ordinary memory, because window
/// memory is allocated in units of 64 KiB.
const SMALL: usize = 4096;

struct PinnedBlock {
    bytes: usize,
    flags: u32,
    gpu: &'static Gpu,
    context: usize,
    id: u64,
    /// Window memory of the block; `None` if it is ordinary memory, in a mapping of its own.
    window: Option<WindowMemory>,
}

/// Blocks by address.
static BLOCKS: RwLock<BTreeMap<usize, PinnedBlock>> = RwLock::new(BTreeMap::new());
static IN_WINDOW: AtomicUsize = AtomicUsize::new(0);

/// Properties of a block of pinned memory.
#[derive(Clone, Copy, Debug)]
pub struct PinnedRange {
    /// First address of the block.
    pub start: usize,
    /// Size in bytes that the program asked for.
    pub bytes: usize,
    /// Flags with which the block was allocated.
    pub flags: u32,
    /// Ordinal of the device whose context was current.
    pub ordinal: i32,
    /// Handle of that context.
    pub context: usize,
    /// A number that no other allocation has had.
    pub id: u64,
}

fn within<T>(address: usize, look: impl FnOnce(usize, &PinnedBlock) -> Option<T>) -> Option<T> {
    let blocks = BLOCKS.read();
    let (&start, block) = blocks.range(..=address).next_back()?;
    if address - start < block.bytes { look(start, block) } else { None }
}

/// Returns the block in which an address lies.
pub fn find(address: usize) -> Option<PinnedRange> {
    within(address, |start, block| {
        Some(PinnedRange {
            start,
            bytes: block.bytes,
            flags: block.flags,
            ordinal: block.gpu.ordinal(),
            context: block.context,
            id: block.id,
        })
    })
}

/// Returns the offset in the device's window of `bytes` bytes of host memory, or `None` if they are not in
/// the window.
#[inline]
pub fn in_window(gpu: &Gpu, address: *const c_void, bytes: usize) -> Option<u64> {
    if IN_WINDOW.load(Ordering::Acquire) == 0 {
        return None;
    }
    let address = address as usize;
    within(address, |start, block| {
        let window = block.window.as_ref().filter(|_| ptr::eq(block.gpu, gpu))?;
        let offset = address - start;
        (bytes <= block.bytes - offset).then(|| window.offset() + offset as u64)
    })
}

fn map(bytes: usize) -> Result<usize> {
    // SAFETY: a new private mapping, no address asked for.
    let address = unsafe {
        libc::mmap(
            ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if address == libc::MAP_FAILED { Err(CUresult::OUT_OF_MEMORY) } else { Ok(address as usize) }
}

/// Allocates pinned host memory and stores its address.
pub fn allocate(out: Out<*mut c_void>, bytes: usize, flags: c_uint) -> Result {
    let context = current::context()?;
    let out = out.check()?;
    capture::forbid_unsafe()?;
    let known = HOST_ALLOC_PORTABLE | HOST_ALLOC_DEVICE_MAP | HOST_ALLOC_WRITE_COMBINED;
    if bytes == 0 || flags & !known != 0 {
        return Err(CUresult::INVALID_VALUE);
    }
    let gpu = context.gpu();
    gpu.queue.async_error()?;
    let window =
        if bytes < SMALL || !gpu.queue.session.window_reads_well().map_err(|lost| gpu.queue.report(&lost))? {
            None
        } else {
            gpu.queue.session.window_alloc(bytes as u64).map_err(|lost| gpu.queue.report(&lost))?
        };
    let address = match &window {
        Some(memory) => memory.ptr() as usize,
        None => map(bytes)?,
    };
    let in_window = window.is_some();
    let block = PinnedBlock { bytes, flags, gpu, context: context.handle(), id: next_id(), window };
    BLOCKS.write().insert(address, block);
    pinned_ranges::add(address, bytes);
    IN_WINDOW.fetch_add(usize::from(in_window), Ordering::Release);
    out.set(address as *mut c_void)
}

/// Frees pinned host memory. Waits while the host uses any.
pub fn free(address: *mut c_void) -> Result {
    current::context()?;
    capture::forbid_unsafe()?;
    let block = BLOCKS.write().remove(&(address as usize)).ok_or(CUresult::INVALID_VALUE)?;
    pinned_ranges::remove(address as usize);
    // The host's copies in progress must not reach the memory's next owner, so this waits for them.
    let settled = block.gpu.quiesce_pinned();
    match block.window {
        Some(memory) => {
            IN_WINDOW.fetch_sub(1, Ordering::Release);
            drop(memory);
        }
        None => {
            // SAFETY: `map` made this mapping with this size, and the block was taken from the list once.
            unsafe { libc::munmap(address, block.bytes) };
        }
    }
    settled
}
