//! "Execution Control", functions of the host: `cuLaunchHostFunc` and `cuStreamAddCallback`.
//!
//! The host holds the stream where the function belongs ([`StreamHold`]), a thread of the guest waits for that, calls the function,
//! and lets the stream go on ([`StreamRelease`]). There is one such thread, made with the first function; it takes functions in the
//! order in which they were given. That never waits for a function that waits behind it, since work can be ordered only behind work
//! that was given before; and CUDA, too, may call them one after the other.

use std::collections::VecDeque;
use std::ffi::{c_uint, c_void};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, PoisonError};

use vgpu_abi::CUresult;
use vgpu_abi::driver::CUstream;
use vgpu_wire::body::stream::{StreamHold, StreamRelease};
use vgpu_wire::facts::exec;

use crate::gpu::{Gpu, Minted};
use crate::lane::Goal;
use crate::stream::{Stream, find};
use crate::sync::{Mutex, MutexGuard};
use crate::{Result, capture};

/// `CUhostFn`
type HostFunction = unsafe extern "C" fn(*mut c_void);
/// `CUstreamCallback`
type StreamCallback = unsafe extern "C" fn(CUstream, CUresult, *mut c_void);

/// What is called.
#[derive(Clone, Copy)]
enum Call {
    /// Not if the work before it failed.
    Function(HostFunction),
    /// In any case, with the stream's handle as the program gave it.
    Callback(StreamCallback, CUstream),
}

/// A function that waits for its turn.
struct Task {
    call: Call,
    /// The program's own argument.
    data: *mut c_void,
    gpu: &'static Gpu,
    hold: u32,
    /// Reached when the stream is held.
    goal: Goal,
}

// SAFETY: the argument is the program's, which under CUDA's rules lets another thread have it.
unsafe impl Send for Task {}

static TASKS: Mutex<VecDeque<Task>> = Mutex::new(VecDeque::new());
static NEWS: Condvar = Condvar::new();
static THREAD: AtomicBool = AtomicBool::new(false);

fn launch(stream: &Stream, call: Call, data: *mut c_void) -> Result {
    let gpu = stream.gpu();
    if capture::any() && capture::intercept(stream)? {
        // A function within a graph: the contract has no such node.
        return capture::fail(stream, CUresult::STREAM_CAPTURE_UNSUPPORTED);
    }
    if gpu.shown.facts.abilities & exec::HOLDS == 0 {
        return Err(CUresult::NOT_SUPPORTED);
    }
    gpu.late()?;
    // From the message on until it is in the list: functions of one stream are in both in the same order.
    let mut tasks = TASKS.lock();
    begin_thread(&tasks)?;
    let (hold, number) = (gpu.mint(Minted::Hold), stream.lane.number());
    gpu.held(true);
    let sent = stream.lane.hold(gpu, |mark| gpu.send(&StreamHold { stream: number, hold, mark }, &[]));
    let goal = sent.inspect_err(|_| gpu.held(false))?;
    tasks.push_back(Task { call, data, gpu, hold, goal });
    NEWS.notify_one();
    drop(tasks);
    // A synchronize waits for the function.
    gpu.pending.add(stream.lane.signal_always(gpu)?);
    Ok(())
}

/// Makes the thread unless it is there. `_tasks`: under this lock.
fn begin_thread(_tasks: &MutexGuard<'_, VecDeque<Task>>) -> Result {
    if THREAD.load(Ordering::Relaxed) {
        return Ok(());
    }
    let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: fills the set.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    // The program's signals are not for this thread, which inherits the mask.
    // SAFETY: reads the set filled above, writes the other.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) };
    let mut thread: libc::pthread_t = 0;
    // SAFETY: `serve` lives as long as the process, since this object is never unloaded, and takes no argument.
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
    loop {
        let task = next();
        vgpu_abi::export::guard("host function", || carry(&task));
        // Whatever came of it: a stream that stays held would hang the program.
        let _ = task.gpu.send(&StreamRelease { hold: task.hold, reserved: 0 }, &[]);
        task.gpu.held(false);
    }
}

fn next() -> Task {
    let mut tasks = TASKS.lock();
    loop {
        match tasks.pop_front() {
            Some(task) => return task,
            None => tasks = NEWS.wait(tasks).unwrap_or_else(PoisonError::into_inner),
        }
    }
}

fn carry(task: &Task) {
    let reached = task.gpu.wait(task.goal.0, task.goal.1);
    match (task.call, reached) {
        (Call::Function(function), Ok(())) => {
            // SAFETY: the program's function with the program's argument, as it asked for.
            unsafe { function(task.data) };
        }
        // The process ends: the program's code may be torn down already.
        (_, Err(CUresult::DEINITIALIZED)) | (Call::Function(_), Err(_)) => {}
        (Call::Callback(callback, stream), reached) => {
            let status = reached.err().unwrap_or(CUresult::SUCCESS);
            // SAFETY: as above.
            unsafe { callback(stream, status, task.data) };
        }
    }
}

fn function(function: Option<HostFunction>) -> Result<Call> {
    function.map(Call::Function).ok_or(CUresult::INVALID_VALUE)
}

export_both! {
    /// `cuLaunchHostFunc`
    pub fn cuLaunchHostFunc, cuLaunchHostFunc_ptsz(
        stream: CUstream, call: Option<HostFunction>, data: *mut c_void
    ) |default| {
        launch(find(stream, default)?, function(call)?, data)
    }

    /// `cuLaunchHostFunc_v2`: how the device waits meanwhile (0 or 1) is the host's affair.
    pub fn cuLaunchHostFunc_v2, cuLaunchHostFunc_v2_ptsz(
        stream: CUstream, call: Option<HostFunction>, data: *mut c_void, mode: c_uint
    ) |default| {
        let stream = find(stream, default)?;
        if mode > 1 {
            return Err(CUresult::INVALID_VALUE);
        }
        launch(stream, function(call)?, data)
    }

    /// `cuStreamAddCallback`
    pub fn cuStreamAddCallback, cuStreamAddCallback_ptsz(
        handle: CUstream, callback: Option<StreamCallback>, data: *mut c_void, flags: c_uint
    ) |default| {
        let stream = find(handle, default)?;
        let callback = callback.ok_or(CUresult::INVALID_VALUE)?;
        if flags != 0 {
            return Err(CUresult::INVALID_VALUE);
        }
        launch(stream, Call::Callback(callback, handle), data)
    }
}
