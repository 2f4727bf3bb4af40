//! Host functions that a stream calls, by `cuLaunchHostFunc` and `cuStreamAddCallback`.
//!
//! The host holds the stream at the function's position ([`StreamHold`]). A thread of the guest waits for
//! that, calls the function, and releases the stream: it stores the hold's number where a GPU can poll it,
//! and sends [`StreamRelease`]. There is one such thread, created with the first function, which calls
//! functions in the order in which they were submitted. It never waits for a function further back in the
//! queue, since work can be ordered only after work that was submitted earlier. CUDA too may call functions
//! one after the other.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, PoisonError};
use std::time::Duration;

use vgpu_abi::CUresult;
use vgpu_abi::driver::{CUhostFn, CUstream, CUstreamCallback};
use vgpu_wire::body::stream::{StreamHold, StreamRelease};
use vgpu_wire::facts::exec;

use crate::Result;
use crate::object::capture;
use crate::object::gpu::Gpu;
use crate::object::stream::Stream;
use crate::queue::pending::FencePoint;
use crate::queue::submission::Minted;
use crate::sync::{Mutex, MutexGuard};

/// Time after which a release is tried again for which the ring had no room.
const AGAIN: Duration = Duration::from_micros(100);

/// The host function to call.
#[derive(Clone, Copy)]
pub enum HostCall {
    /// Skipped if the work before it failed.
    Function(CUhostFn),
    /// Callback that is called in any case, with the stream's handle as the program gave it.
    Callback(CUstreamCallback, CUstream),
}

/// A function that has not been called yet.
struct HostTask {
    call: HostCall,
    /// The program's own argument.
    data: *mut c_void,
    gpu: &'static Gpu,
    hold: u32,
    /// Fence point that is reached once the stream is held.
    fence: FencePoint,
}

// SAFETY: the argument is the program's, which under CUDA's rules lets another thread have it.
unsafe impl Send for HostTask {}

/// Locked from sending a hold until its function is in the list, so that both have the functions in one
/// order. The list itself is not locked meanwhile: sending waits if the ring is full, and the room may depend
/// on the next function.
static ORDER: Mutex<()> = Mutex::new(());
static TASKS: Mutex<VecDeque<HostTask>> = Mutex::new(VecDeque::new());
static NEWS: Condvar = Condvar::new();
static THREAD: AtomicBool = AtomicBool::new(false);

/// Submits a call of a host function, which starts once all earlier work of the stream has completed. Later
/// work of the stream waits for its return.
pub fn launch(stream: &Stream, call: HostCall, data: *mut c_void) -> Result {
    let gpu = stream.gpu();
    if capture::intercept(stream)? {
        // The contract has no node for a function within a graph.
        return capture::fail(stream, CUresult::STREAM_CAPTURE_UNSUPPORTED);
    }
    if gpu.shown.facts.abilities & exec::HOLDS == 0 {
        return Err(CUresult::NOT_SUPPORTED);
    }
    gpu.queue.async_error()?;
    stream.timeline.wait_for_room(&gpu.queue);
    let order = ORDER.lock();
    begin_thread(&order)?;
    let (hold, number) = (gpu.queue.mint(Minted::Hold), stream.timeline.number());
    gpu.queue.holds.begin();
    let sent = stream
        .timeline
        .hold(&gpu.queue, hold, |mark| gpu.queue.send(&StreamHold { stream: number, hold, mark }, &[]));
    let fence = sent.inspect_err(|_| gpu.queue.holds.cancel())?;
    TASKS.lock().push_back(HostTask { call, data, gpu, hold, fence });
    NEWS.notify_one();
    drop(order);
    // A synchronize must wait for the function.
    gpu.queue.pending.add(stream.timeline.signal_always(&gpu.queue)?);
    Ok(())
}

/// Creates the thread unless it exists. `_order` shows that the lock is held.
fn begin_thread(_order: &MutexGuard<'_, ()>) -> Result {
    if THREAD.load(Ordering::Relaxed) {
        return Ok(());
    }
    let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: fills the set.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    // The thread inherits the mask: the program's signals are not for it.
    // SAFETY: reads the set filled above, writes the other.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) };
    let mut thread: libc::pthread_t = 0;
    // SAFETY: `serve` lives as long as the process, since this object is never unloaded, and takes no
    // argument.
    let made = unsafe { libc::pthread_create(&raw mut thread, ptr::null(), serve, ptr::null_mut()) };
    // SAFETY: the set that the first call has stored.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut()) };
    if made != 0 {
        return Err(CUresult::OUT_OF_MEMORY);
    }
    // SAFETY: made above; nobody joins it.
    unsafe { libc::pthread_detach(thread) };
    THREAD.store(true, Ordering::Relaxed);
    Ok(())
}

extern "C" fn serve(_: *mut c_void) -> *mut c_void {
    let mut unsent = VecDeque::new();
    loop {
        if let Some(task) = next(&unsent) {
            // The function's turn may come only after these.
            while !unsent.is_empty()
                && let Ok(false) = task.gpu.queue.reached(task.fence.0, task.fence.1)
            {
                std::thread::sleep(AGAIN);
                send_releases(&mut unsent);
            }
            vgpu_abi::export::guard("host function", || carry(&task));
            // The stream is released in any case: held forever it would hang the program.
            task.gpu.queue.session.release_holds(task.hold);
            unsent.push_back((task.gpu, task.hold));
            send_releases(&mut unsent);
            task.gpu.queue.holds.end(task.hold);
        } else {
            send_releases(&mut unsent);
        }
    }
}

/// Sends the releases for which the ring has room. The thread must not wait for room, because the host may be
/// unable to read the ring before the next function has returned.
fn send_releases(unsent: &mut VecDeque<(&'static Gpu, u32)>) {
    while let Some(&(gpu, hold)) = unsent.front() {
        // A lost session needs no release.
        if let Ok(false) = gpu.queue.try_send(&StreamRelease { hold, reserved: 0 }) {
            return;
        }
        unsent.pop_front();
    }
}

/// Waits for the next function. Returns `None` when releases that were not sent should be tried again.
fn next(unsent: &VecDeque<(&'static Gpu, u32)>) -> Option<HostTask> {
    let mut tasks = TASKS.lock();
    loop {
        if let Some(task) = tasks.pop_front() {
            return Some(task);
        }
        if unsent.is_empty() {
            tasks = NEWS.wait(tasks).unwrap_or_else(PoisonError::into_inner);
        } else {
            let waited = NEWS.wait_timeout(tasks, AGAIN).unwrap_or_else(PoisonError::into_inner);
            tasks = waited.0;
            if waited.1.timed_out() {
                return tasks.pop_front();
            }
        }
    }
}

fn carry(task: &HostTask) {
    let reached = task.gpu.queue.wait(task.fence.0, task.fence.1);
    match (task.call, reached) {
        (HostCall::Function(function), Ok(())) => {
            // SAFETY: the program's function with the program's argument, as it asked for.
            unsafe { function(task.data) };
        }
        // The process is exiting, and the program's code may be gone already.
        (_, Err(CUresult::DEINITIALIZED)) | (HostCall::Function(_), Err(_)) => {}
        (HostCall::Callback(callback, stream), reached) => {
            let status = reached.err().unwrap_or(CUresult::SUCCESS);
            // SAFETY: as above.
            unsafe { callback(stream, status, task.data) };
        }
    }
}

/// Returns the function of `cuLaunchHostFunc`; null is an invalid value.
pub fn function(function: Option<CUhostFn>) -> Result<HostCall> {
    function.map(HostCall::Function).ok_or(CUresult::INVALID_VALUE)
}
