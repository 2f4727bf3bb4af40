//! Streams: what the guest knows of each stream, and its timeline.

use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use vgpu_abi::CUresult;
use vgpu_abi::driver::{CUstream, STREAM_NON_BLOCKING};
use vgpu_wire::Payload;
use vgpu_wire::body::stream::{StreamCreate, StreamDestroy};

use crate::Result;
use crate::object::gpu::Gpu;
use crate::queue::pending::FencePoint;
use crate::queue::submission::Minted;
use crate::queue::timeline::Timeline;
use crate::slab::Slab;
use crate::sync::Mutex;

/// Role of a stream, which determines how it synchronises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Role {
    /// The stream is the legacy default stream of a context.
    Legacy = 0,
    /// The stream is a thread's default stream in a context.
    PerThread = 1,
    /// The stream was created by `cuStreamCreate`.
    Created = 2,
}

/// The record behind a `CUstream`.
#[derive(Default)]
pub struct Stream {
    gpu: AtomicPtr<Gpu>,
    context: AtomicUsize,
    id: AtomicU64,
    role: AtomicU32,
    flags: AtomicU32,
    priority: AtomicI32,
    /// Order of the stream's work.
    pub timeline: Timeline,
    /// Number of the capture that records the stream; 0 if there is none.
    pub capture: AtomicU64,
    /// Fence point of the last query of a legacy stream, which covers all streams, and the number of pieces
    /// of work that it covers.
    pub query: Mutex<Option<(FencePoint, u64)>>,
}

static STREAMS: Slab<Stream> = Slab::new(2);

fn next_id() -> u64 {
    static IDS: AtomicU64 = AtomicU64::new(0);
    IDS.fetch_add(1, Ordering::Relaxed) + 1
}

/// Properties in which a new stream differs from others of its device.
struct Properties {
    context: usize,
    role: Role,
    flags: u32,
    priority: i32,
    /// Number of the stream in messages.
    number: u32,
}

impl Stream {
    /// Initialises this record as the legacy stream of a context.
    pub fn prepare_legacy(&self, gpu: &'static Gpu, context: usize) {
        self.prepare(gpu, &Properties { context, role: Role::Legacy, flags: 0, priority: 0, number: 0 });
    }

    fn prepare(&self, gpu: &'static Gpu, new: &Properties) {
        self.gpu.store(ptr::from_ref(gpu).cast_mut(), Ordering::Relaxed);
        self.context.store(new.context, Ordering::Relaxed);
        self.id.store(next_id(), Ordering::Relaxed);
        self.role.store(new.role as u32, Ordering::Relaxed);
        self.flags.store(new.flags, Ordering::Relaxed);
        self.priority.store(new.priority, Ordering::Relaxed);
        self.capture.store(0, Ordering::Relaxed);
        *self.query.lock() = None;
        self.timeline.begin(new.number, new.flags & STREAM_NON_BLOCKING == 0);
    }

    /// Returns the device that executes the stream's work.
    #[inline]
    pub fn gpu(&self) -> &'static Gpu {
        // SAFETY: `prepare` stored the address of a leaked value before anyone could find the stream.
        unsafe { &*self.gpu.load(Ordering::Relaxed) }
    }

    /// Returns the handle of the stream's context.
    #[inline]
    pub fn context(&self) -> usize {
        self.context.load(Ordering::Relaxed)
    }

    /// Returns a number that no other stream of the process has had.
    pub fn id(&self) -> u64 {
        self.id.load(Ordering::Relaxed)
    }

    /// Returns whether this is a legacy default stream.
    #[inline]
    pub fn is_legacy(&self) -> bool {
        self.role.load(Ordering::Relaxed) == Role::Legacy as u32
    }

    /// Returns whether the stream and the legacy stream wait for each other.
    pub fn is_blocking(&self) -> bool {
        self.flags() & STREAM_NON_BLOCKING == 0
    }

    /// Returns the flags with which the stream was created.
    pub fn flags(&self) -> u32 {
        self.flags.load(Ordering::Relaxed)
    }

    /// Returns the priority with which the stream was created.
    pub fn priority(&self) -> i32 {
        self.priority.load(Ordering::Relaxed)
    }

    /// Sends a piece of work to the host, whether or not the stream is captured.
    #[inline]
    pub fn send<P: Payload>(&self, body: &P, tail: &[&[u8]]) -> Result {
        let queue = &self.gpu().queue;
        queue.async_error()?;
        self.timeline.wait_for_room(queue);
        queue.send(body, tail)?;
        self.timeline.submitted(queue);
        Ok(())
    }

    /// Waits until all work of the stream has completed.
    pub fn drain(&self) -> Result {
        let gpu = self.gpu();
        if self.is_legacy() { gpu.drain() } else { self.timeline.drain(&gpu.queue) }
    }
}

/// Creates a stream in a context of the device. Returns its handle.
pub fn create(gpu: &'static Gpu, context: usize, role: Role, flags: u32, priority: i32) -> Result<usize> {
    let number = gpu.queue.mint(Minted::Stream);
    gpu.queue.send(&StreamCreate { stream: number, flags, priority, reserved: 0 }, &[])?;
    let new = Properties { context, role, flags, priority, number };
    let (handle, _) = STREAMS.insert(|_, stream| stream.prepare(gpu, &new)).ok_or(CUresult::OUT_OF_MEMORY)?;
    Ok(handle)
}

/// Returns the stream of a handle, which is not one of the special handles of default streams.
#[inline]
pub fn get(handle: usize) -> Option<&'static Stream> {
    STREAMS.get(handle)
}

/// Returns the stream of a handle if `cuStreamCreate` created it.
pub fn created(handle: CUstream) -> Result<&'static Stream> {
    let mine = |stream: &&Stream| stream.role.load(Ordering::Relaxed) == Role::Created as u32;
    STREAMS.get(handle.0).filter(mine).ok_or(CUresult::INVALID_HANDLE)
}

/// Calls `each` with each stream of a device that is not a legacy stream.
pub fn for_all(gpu: &Gpu, mut each: impl FnMut(&Stream)) {
    for (_, stream) in STREAMS.iter() {
        if ptr::eq(stream.gpu(), gpu) {
            each(stream);
        }
    }
}

/// Destroys a stream. Its work completes nevertheless.
pub fn destroy(handle: usize) -> Result {
    STREAMS.remove(handle, end).ok_or(CUresult::INVALID_HANDLE)?
}

/// Frees the words of a stream whose handle is no longer valid, and destroys it on the host.
fn end(stream: &Stream) -> Result {
    let queue = &stream.gpu().queue;
    stream.timeline.end(queue);
    queue.send(&StreamDestroy { stream: stream.timeline.number(), reserved: 0 }, &[]).map(drop)
}

/// Ends the streams of a context.
pub fn end_context(context: usize) {
    for (handle, stream) in STREAMS.iter() {
        if stream.context() == context {
            // The context ends even if the host returns an error.
            let _ = STREAMS.remove(handle, end);
        }
    }
}
