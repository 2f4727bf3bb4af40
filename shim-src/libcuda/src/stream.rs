//! "Stream Management": streams, the default streams, and how work gets onto them.

use std::cell::{Cell, RefCell};
use std::ffi::{c_int, c_uint, c_ulonglong};
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use vgpu_abi::driver::{CUcontext, CUdevice, CUevent, CUstream, STREAM_NON_BLOCKING};
use vgpu_abi::{CUresult, export};
use vgpu_wire::Payload;
use vgpu_wire::body::stream::{StreamCreate, StreamDestroy};

use crate::arg::Out;
use crate::context::{self, Context};
use crate::gpu::{Gpu, Minted};
use crate::lane::{Goal, Lane};
use crate::slab::Slab;
use crate::sync::Mutex;
use crate::{Result, capture, event};

/// What a stream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Role {
    /// The legacy default stream of a context.
    Legacy = 0,
    /// A thread's default stream in a context.
    PerThread = 1,
    /// Made by `cuStreamCreate`.
    Created = 2,
}

/// What handle 0 means: the one for most exports, the other for their twins `_ptsz` and `_ptds`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultStream {
    /// The legacy stream.
    Legacy,
    /// The calling thread's.
    PerThread,
}

/// A stream.
#[derive(Default)]
pub struct Stream {
    gpu: AtomicPtr<Gpu>,
    context: AtomicUsize,
    handle: AtomicUsize,
    id: AtomicU64,
    role: AtomicU32,
    flags: AtomicU32,
    priority: AtomicI32,
    /// The order of its work.
    pub lane: Lane,
    /// The capture that records it; 0: none.
    pub capture: AtomicU64,
    /// Legacy stream only: what tells that all work known at the last query is done, and how much work that was.
    query: Mutex<Option<(Goal, u64)>>,
}

static STREAMS: Slab<Stream> = Slab::new(2);

fn next_id() -> u64 {
    static IDS: AtomicU64 = AtomicU64::new(0);
    IDS.fetch_add(1, Ordering::Relaxed) + 1
}

impl Stream {
    /// Makes itself the legacy stream of a context.
    pub fn prepare_legacy(&self, gpu: &'static Gpu, context: usize) {
        self.prepare(gpu, context, CUstream(1).0, Role::Legacy, 0, 0, 0);
    }

    #[allow(clippy::too_many_arguments, reason = "all that a stream is made of, in one place")]
    fn prepare(
        &self,
        gpu: &'static Gpu,
        context: usize,
        handle: usize,
        role: Role,
        flags: u32,
        priority: i32,
        number: u32,
    ) {
        self.gpu.store(ptr::from_ref(gpu).cast_mut(), Ordering::Relaxed);
        self.context.store(context, Ordering::Relaxed);
        self.handle.store(handle, Ordering::Relaxed);
        self.id.store(next_id(), Ordering::Relaxed);
        self.role.store(role as u32, Ordering::Relaxed);
        self.flags.store(flags, Ordering::Relaxed);
        self.priority.store(priority, Ordering::Relaxed);
        self.capture.store(0, Ordering::Relaxed);
        *self.query.lock() = None;
        self.lane.begin(number);
    }

    /// The device.
    #[inline]
    pub fn gpu(&self) -> &'static Gpu {
        // SAFETY: `prepare` stored the address of a leaked value before anyone could find the stream.
        unsafe { &*self.gpu.load(Ordering::Relaxed) }
    }

    /// Handle of its context.
    #[inline]
    pub fn context(&self) -> usize {
        self.context.load(Ordering::Relaxed)
    }

    /// A number that no other stream of the process has had.
    pub fn id(&self) -> u64 {
        self.id.load(Ordering::Relaxed)
    }

    /// Whether it is a legacy default stream.
    #[inline]
    pub fn is_legacy(&self) -> bool {
        self.role.load(Ordering::Relaxed) == Role::Legacy as u32
    }

    /// Whether it and the legacy stream wait for each other.
    pub fn is_blocking(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & STREAM_NON_BLOCKING == 0
    }

    /// The stream's priority.
    pub fn priority(&self) -> i32 {
        self.priority.load(Ordering::Relaxed)
    }

    /// Gives the host a piece of work for this stream, or a capture a node. `make` is told the stream's number on the wire, 0 in a graph:
    /// nodes are ordered by their edges.
    #[inline]
    pub fn submit<P: Payload>(&self, make: impl FnOnce(u32) -> P, tail: &[&[u8]]) -> Result {
        if capture::any() && capture::intercept(self)? {
            return capture::record(self, &make(0), tail);
        }
        self.send(&make(self.lane.number()), tail)
    }

    /// Gives the host a piece of work, whatever captures say.
    #[inline]
    pub fn send<P: Payload>(&self, body: &P, tail: &[&[u8]]) -> Result {
        let gpu = self.gpu();
        gpu.late()?;
        gpu.send(body, tail)?;
        self.lane.given(gpu);
        Ok(())
    }

    /// `cuStreamSynchronize`
    pub fn synchronize(&self) -> Result {
        if capture::any() {
            capture::forbid_sync(self)?;
        }
        let gpu = self.gpu();
        if self.is_legacy() {
            return gpu.settle();
        }
        self.lane.synchronize(gpu)?;
        gpu.late()
    }

    /// Really waits for its work.
    pub fn drain(&self) -> Result {
        let gpu = self.gpu();
        if self.is_legacy() { gpu.drain() } else { self.lane.drain(gpu) }
    }

    /// Whether all its work is done.
    pub fn query(&self) -> Result<bool> {
        if capture::any() {
            capture::forbid_sync(self)?;
        }
        let gpu = self.gpu();
        gpu.late()?;
        let (goal, fresh) = if self.is_legacy() {
            self.legacy_goal(gpu)?
        } else if self.lane.is_joined() {
            (None, false)
        } else {
            (self.lane.signal(gpu)?, self.lane.is_fresh(gpu))
        };
        if let Some((word, value)) = goal
            && !gpu.reached(word, value)?
        {
            if fresh || gpu.holds() {
                return Ok(false);
            }
            gpu.wait(word, value)?;
        }
        gpu.learned();
        gpu.late()?;
        Ok(true)
    }

    /// The legacy stream comes after the work of other streams, so that what was given to all of them decides whether an older mark
    /// still tells enough, and whether there is anything that may be said not to be done.
    fn legacy_goal(&self, gpu: &Gpu) -> Result<(Option<Goal>, bool)> {
        let (mut given, mut joined, mut fresh) = (0, true, false);
        for_all(gpu, |lane| {
            given += lane.given_so_far();
            joined &= lane.is_joined();
            fresh |= lane.is_fresh(gpu);
        });
        if joined {
            return Ok((None, false));
        }
        let mut query = self.query.lock();
        let goal = match *query {
            Some((goal, count)) if count == given => goal,
            _ => {
                let goal = gpu.everything.signal_always(gpu)?;
                *query = Some((goal, given));
                goal
            }
        };
        Ok((Some(goal), fresh))
    }
}

/// Looks at the order of each stream of a device.
fn for_all(gpu: &Gpu, mut look: impl FnMut(&Lane)) {
    for (_, stream) in STREAMS.iter() {
        if ptr::eq(stream.gpu(), gpu) {
            look(&stream.lane);
        }
    }
    context::for_all(|context| {
        if ptr::eq(context.gpu(), gpu) {
            look(&context.legacy.lane);
        }
    });
}

/// The stream of a handle, for the calling thread's context.
#[inline]
pub fn find(handle: CUstream, default: DefaultStream) -> Result<&'static Stream> {
    find_in(context::current()?, handle, default)
}

/// The stream of a handle, where the context is known.
#[inline]
pub fn find_in(
    context: &'static Context,
    handle: CUstream,
    default: DefaultStream,
) -> Result<&'static Stream> {
    match (handle.0, default) {
        (0, DefaultStream::Legacy) | (1, _) => Ok(&context.legacy),
        (0, DefaultStream::PerThread) | (2, _) => per_thread(context),
        (handle, _) => STREAMS.get(handle).ok_or(CUresult::INVALID_HANDLE),
    }
}

/// A thread's default streams, one for each context it has used. When the thread ends, the next thread gets them.
struct Mine(RefCell<Vec<(usize, usize)>>);

impl Drop for Mine {
    fn drop(&mut self) {
        for &(context, stream) in self.0.get_mut().iter() {
            if let (Ok(context), Some(_)) = (context::get(CUcontext(context)), STREAMS.get(stream)) {
                context.spare.lock().push(stream);
            }
        }
        LAST.set((0, 0));
    }
}

thread_local! {
    static MINE: Mine = const { Mine(RefCell::new(Vec::new())) };
    /// The context and stream found last.
    static LAST: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
}

fn per_thread(context: &'static Context) -> Result<&'static Stream> {
    let wanted = context.handle();
    let (last, stream) = LAST.get();
    if last == wanted
        && let Some(stream) = STREAMS.get(stream)
    {
        return Ok(stream);
    }
    let known = MINE.try_with(|mine| {
        let mut list = mine.0.borrow_mut();
        list.retain(|entry| STREAMS.get(entry.1).is_some());
        list.iter().find(|entry| entry.0 == wanted).map(|entry| entry.1)
    });
    let handle = if let Ok(Some(handle)) = known {
        handle
    } else {
        let spare = context.spare.lock().pop();
        let handle = match spare {
            Some(handle) => handle,
            None => make(context, Role::PerThread, 0, 0)?,
        };
        // While the thread ends it cannot keep a list; the stream then ends with its context.
        let _ = MINE.try_with(|mine| mine.0.borrow_mut().push((wanted, handle)));
        handle
    };
    LAST.set((wanted, handle));
    STREAMS.get(handle).ok_or(CUresult::INVALID_HANDLE)
}

fn make(context: &'static Context, role: Role, flags: u32, priority: i32) -> Result<usize> {
    let gpu = context.gpu();
    let number = gpu.mint(Minted::Stream);
    gpu.send(&StreamCreate { stream: number, flags, priority, reserved: 0 }, &[])?;
    let (handle, _) = STREAMS
        .insert(|handle, stream| {
            stream.prepare(gpu, context.handle(), handle, role, flags, priority, number);
        })
        .ok_or(CUresult::OUT_OF_MEMORY)?;
    Ok(handle)
}

fn create(out: Out<CUstream>, flags: c_uint, priority: c_int) -> Result {
    let context = context::current()?;
    let out = out.check()?;
    if flags & !STREAM_NON_BLOCKING != 0 {
        return Err(CUresult::INVALID_VALUE);
    }
    context.gpu().late()?;
    let (most, least) = context::priorities(context.gpu());
    let handle = make(context, Role::Created, flags, priority.clamp(most, least))?;
    out.set(CUstream(handle))
}

fn destroy(handle: CUstream) -> Result {
    context::current()?;
    let stream = STREAMS.get(handle.0).ok_or(CUresult::INVALID_HANDLE)?;
    if stream.role.load(Ordering::Relaxed) != Role::Created as u32 {
        return Err(CUresult::INVALID_HANDLE);
    }
    capture::end_stream(stream);
    STREAMS.remove(handle.0, end).ok_or(CUresult::INVALID_HANDLE)?
}

/// Ends a stream whose handle is dead. Its work goes on.
fn end(stream: &Stream) -> Result {
    let gpu = stream.gpu();
    stream.lane.end(gpu);
    gpu.send(&StreamDestroy { stream: stream.lane.number(), reserved: 0 }, &[]).map(drop)
}

/// Ends the streams of a context.
pub fn end_context(context: usize) {
    for (handle, stream) in STREAMS.iter() {
        if stream.context() == context {
            // The context ends whatever the host says to it.
            let _ = STREAMS.remove(handle, end);
        }
    }
}

fn query(stream: &Stream) -> Result {
    if stream.query()? { Ok(()) } else { Err(CUresult::NOT_READY) }
}

export! {
    /// `cuStreamCreate`
    pub fn cuStreamCreate(stream: Out<CUstream>, flags: c_uint) -> CUresult { create(stream, flags, 0) }

    /// `cuStreamCreateWithPriority`: a priority out of range is brought into it.
    pub fn cuStreamCreateWithPriority(stream: Out<CUstream>, flags: c_uint, priority: c_int) -> CUresult {
        create(stream, flags, priority)
    }

    /// `cuStreamDestroy_v2`: its work is finished nevertheless.
    pub fn cuStreamDestroy_v2(stream: CUstream) -> CUresult { destroy(stream) }

    /// `cuStreamDestroy`
    pub fn cuStreamDestroy(stream: CUstream) -> CUresult { destroy(stream) }
}

export_both! {
    /// `cuStreamSynchronize`: really waits if copies of the host's own memory may be under way; else it is enough that
    /// everything later comes after.
    pub fn cuStreamSynchronize, cuStreamSynchronize_ptsz(stream: CUstream) |default| {
        find(stream, default)?.synchronize()
    }

    /// `cuStreamQuery`
    pub fn cuStreamQuery, cuStreamQuery_ptsz(stream: CUstream) |default| { query(find(stream, default)?) }

    /// `cuStreamWaitEvent`
    pub fn cuStreamWaitEvent, cuStreamWaitEvent_ptsz(stream: CUstream, event: CUevent, flags: c_uint) |default| {
        event::wait(find(stream, default)?, event, flags)
    }

    /// `cuStreamGetFlags`
    pub fn cuStreamGetFlags, cuStreamGetFlags_ptsz(stream: CUstream, flags: Out<c_uint>) |default| {
        flags.set(find(stream, default)?.flags.load(Ordering::Relaxed))
    }

    /// `cuStreamGetPriority`
    pub fn cuStreamGetPriority, cuStreamGetPriority_ptsz(stream: CUstream, priority: Out<c_int>) |default| {
        priority.set(find(stream, default)?.priority())
    }

    /// `cuStreamGetId`
    pub fn cuStreamGetId, cuStreamGetId_ptsz(stream: CUstream, id: Out<c_ulonglong>) |default| {
        id.set(find(stream, default)?.id())
    }

    /// `cuStreamGetCtx`
    pub fn cuStreamGetCtx, cuStreamGetCtx_ptsz(stream: CUstream, context: Out<CUcontext>) |default| {
        context.set(CUcontext(find(stream, default)?.context()))
    }

    /// `cuStreamGetCtx_v2`: no stream is of a green context.
    pub fn cuStreamGetCtx_v2, cuStreamGetCtx_v2_ptsz(
        stream: CUstream, context: Out<CUcontext>, green: Out<usize>
    ) |default| {
        context.set(CUcontext(find(stream, default)?.context()))?;
        green.set_if(0);
        Ok(())
    }

    /// `cuStreamGetDevice`
    pub fn cuStreamGetDevice, cuStreamGetDevice_ptsz(stream: CUstream, device: Out<CUdevice>) |default| {
        device.set(find(stream, default)?.gpu().ordinal())
    }
}
