//! Functions of the host in the order of streams: they run when it is their turn, on a thread of their own,
//! and what comes after them waits.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::ThreadId;

use vgpu_abi::CUresult;
use vgpu_abi::driver::{CUcontext, CUevent, CUgraph, CUstream};

use crate::calls::*;
use crate::case::{Case, cases};
use crate::not_applicable;

pub const CASES: &[Case] = cases![
    "callbacks":
    a_small_copy_reads_what_a_function_before_it_wrote,
    functions_run_in_order_and_hold_their_stream_alone,
    a_synchronize_waits_for_the_function,
    much_work_behind_a_function_is_done,
    times_of_pending_work_are_not_ready,
    what_cannot_be_called_is_refused,
];

/// What a function of the test does: says its number and thread, then waits until it may return.
struct Job {
    number: u32,
    said: Sender<(u32, ThreadId)>,
    go: Receiver<()>,
}

fn job(number: u32, said: &Sender<(u32, ThreadId)>) -> (*mut c_void, Sender<()>) {
    let (send, go) = channel();
    (Box::into_raw(Box::new(Job { number, said: said.clone(), go })).cast(), send)
}

unsafe extern "C" fn wait_for_go(job: *mut c_void) {
    // SAFETY: `job` made it, for one call.
    let job = unsafe { Box::from_raw(job.cast::<Job>()) };
    job.said.send((job.number, std::thread::current().id())).unwrap();
    job.go.recv().unwrap();
}

unsafe extern "C" fn add(to: *mut c_void) {
    // SAFETY: a test's counter, which outlives the call.
    let counter = unsafe { &*to.cast::<AtomicU32>() };
    counter.fetch_add(1, Ordering::SeqCst);
}

unsafe extern "C" fn write_seven(to: *mut c_void) {
    // SAFETY: pinned memory of the test, which outlives the call.
    let place = unsafe { &*to.cast::<AtomicU32>() };
    std::thread::yield_now();
    place.store(7, Ordering::SeqCst);
}

unsafe extern "C" fn run_callback(stream: CUstream, status: CUresult, job: *mut c_void) {
    assert_eq!(status.0, 0);
    assert_ne!(stream, CUstream(0));
    // SAFETY: as this function's caller has it.
    unsafe { wait_for_go(job) };
}

/// Does not apply to a device whose streams do not wait for functions of the host.
fn begin_with_host_functions() {
    static COUNTER: AtomicU32 = AtomicU32::new(0);
    begin();
    let counter = (&raw const COUNTER).cast_mut().cast();
    match cu!(cuLaunchHostFunc(CUstream(0), Some(add), counter)) {
        801 => not_applicable("streams do not wait for functions of the host"),
        status => assert_eq!(status, 0),
    }
    ok!(cuCtxSynchronize());
    assert_eq!(COUNTER.load(Ordering::SeqCst), 1);
}

/// A queue of CUDA's driver is full after about a thousand pieces of work; then the caller is blocked, while
/// other threads and streams go on. Streams share such queues.
fn much_work_behind_a_function_is_done() {
    begin_with_host_functions();
    let context = get!(CUcontext, cuCtxGetCurrent());
    let streams = [0; 4].map(|_| (get!(CUstream, cuStreamCreate(1)), alloc(4096)));
    let (free, spare) = (get!(CUstream, cuStreamCreate(1)), alloc(4096));
    let (said, hears) = channel();
    let go = streams.map(|(held, _)| {
        let (data, go) = job(1, &said);
        ok!(cuLaunchHostFunc(held, Some(wait_for_go), data));
        go
    });
    hears.recv().unwrap();
    let submitted = AtomicU32::new(0);
    std::thread::scope(|scope| {
        let submitted = &submitted;
        for (held, address) in streams {
            scope.spawn(move || {
                ok!(cuCtxSetCurrent(context));
                for value in 0..1000_u32 {
                    ok!(cuMemsetD8Async(address, value as u8, 4096, held));
                    submitted.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        while submitted.load(Ordering::SeqCst) < 200 {
            std::thread::yield_now();
        }
        for value in 0..300_u32 {
            ok!(cuMemsetD8Async(spare, value as u8, 4096, free));
        }
        ok!(cuStreamSynchronize(free));
        for (held, _) in streams {
            assert_eq!(cu!(cuStreamQuery(held)), 600, "the function has not returned");
        }
        for go in go {
            go.send(()).unwrap();
        }
    });
    for (held, address) in streams {
        ok!(cuStreamSynchronize(held));
        assert_eq!(download(address, 4096), [999_u32 as u8; 4096]);
    }
    while hears.try_recv().is_ok() {}
    let [(held, _), ..] = streams;
    let counted = AtomicU32::new(0);
    let (data, go) = job(2, &said);
    ok!(cuLaunchHostFunc(held, Some(wait_for_go), data));
    hears.recv().unwrap();
    std::thread::scope(|scope| {
        let counter = (&raw const counted).cast_mut().cast::<c_void>() as usize;
        scope.spawn(move || {
            ok!(cuCtxSetCurrent(context));
            for _ in 0..500 {
                ok!(cuLaunchHostFunc(held, Some(add), counter as *mut c_void));
            }
            ok!(cuStreamSynchronize(held));
        });
        std::thread::yield_now();
        go.send(()).unwrap();
    });
    assert_eq!(counted.load(Ordering::SeqCst), 500);
}

fn times_of_pending_work_are_not_ready() {
    begin_with_host_functions();
    let held = get!(CUstream, cuStreamCreate(1));
    let [begun, ended, over] = [0; 3].map(|_| get!(CUevent, cuEventCreate(0)));
    let (said, hears) = channel();
    ok!(cuEventRecord(begun, held));
    ok!(cuEventSynchronize(begun));
    let (data, go) = job(1, &said);
    ok!(cuLaunchHostFunc(held, Some(wait_for_go), data));
    ok!(cuEventRecord(ended, held));
    hears.recv().unwrap();
    ok!(cuEventRecord(over, CUstream(2)));
    ok!(cuEventSynchronize(over));
    for _ in 0..20 {
        ok!(cuEventQuery(begun));
        assert_eq!(fails!(f32, cuEventElapsedTime(begun, ended)), 600);
        assert_eq!(cu!(cuEventQuery(ended)), 600);
    }
    go.send(()).unwrap();
    ok!(cuStreamSynchronize(held));
    assert!(get!(f32, cuEventElapsedTime(begun, ended)) >= 0.0);
}

fn a_small_copy_reads_what_a_function_before_it_wrote() {
    begin_with_host_functions();
    let (device, host) = (alloc(4), pinned(1 << 16));
    for _ in 0..20 {
        // SAFETY: the test's own pinned memory, four bytes and more, which nothing uses now.
        unsafe { host.cast::<u32>().write_unaligned(1) };
        ok!(cuLaunchHostFunc(CUstream(0), Some(write_seven), host.cast()));
        ok!(cuMemcpyHtoDAsync_v2(device, host.cast(), 4, CUstream(0)));
        assert_eq!(download(device, 4), 7_u32.to_le_bytes());
    }
}

fn functions_run_in_order_and_hold_their_stream_alone() {
    begin_with_host_functions();
    let (held, free) = (get!(CUstream, cuStreamCreate(1)), get!(CUstream, cuStreamCreate(1)));
    let (before, after) = (get!(CUevent, cuEventCreate(2)), get!(CUevent, cuEventCreate(2)));
    let memory = alloc(64);
    let (said, heard) = channel();
    let ((first, go_first), (second, go_second)) = (job(1, &said), job(2, &said));
    ok!(cuMemsetD8Async(memory, 1, 64, held));
    ok!(cuEventRecord(before, held));
    // A hold, and a mark behind it; the release comes from the function's thread.
    assert_eq!(messages(|| ok!(cuLaunchHostFunc(held, Some(wait_for_go), first))), 2);
    ok!(cuStreamAddCallback(held, Some(run_callback), second, 0));
    ok!(cuEventRecord(after, held));
    let (number, thread) = heard.recv().unwrap();
    assert_eq!(number, 1);
    assert_ne!(thread, std::thread::current().id());
    // The first one has not returned: nothing after it is done, and nobody waits to find out.
    for _ in 0..100 {
        assert_eq!(cu!(cuStreamQuery(held)), 600);
        assert_eq!(cu!(cuEventQuery(after)), 600);
        assert_eq!(cu!(cuEventQuery(before)), 0);
        ok!(cuMemsetD8Async(memory, 2, 64, free));
        // The host does it at once, and then another stream is done whatever this one waits for.
        while cu!(cuStreamQuery(free)) == 600 {
            std::thread::yield_now();
        }
        ok!(cuStreamQuery(free));
    }
    assert!(heard.try_recv().is_err(), "the second one waits for the first");
    go_first.send(()).unwrap();
    assert_eq!(heard.recv().unwrap(), (2, thread));
    assert_eq!(cu!(cuEventQuery(after)), 600);
    go_second.send(()).unwrap();
    ok!(cuEventSynchronize(after));
    ok!(cuStreamQuery(held));
}

fn a_synchronize_waits_for_the_function() {
    begin_with_host_functions();
    let counter = AtomicU32::new(0);
    let place = (&raw const counter).cast_mut().cast();
    let stream = get!(CUstream, cuStreamCreate(1));
    let synchronize: [&dyn Fn(); 4] = [
        &|| ok!(cuStreamSynchronize(stream)),
        &|| ok!(cuCtxSynchronize()),
        &|| ok!(cuStreamSynchronize(CUstream(0))),
        &|| ok!(cuMemFree_v2(alloc(64))),
    ];
    for round in 0..200 {
        for target in [stream, CUstream(0), CUstream(2)] {
            ok!(cuLaunchHostFunc(target, Some(add), place));
            ok!(cuStreamSynchronize(target));
        }
        ok!(cuLaunchHostFunc(stream, Some(add), place));
        synchronize[round as usize % 4]();
        assert_eq!(counter.load(Ordering::SeqCst), 4 * (round + 1));
    }
}

fn what_cannot_be_called_is_refused() {
    begin_with_host_functions();
    let stream = get!(CUstream, cuStreamCreate(1));
    let nobody = std::ptr::null_mut();
    assert_eq!(cu!(cuLaunchHostFunc(stream, None, nobody)), 1);
    assert_eq!(cu!(cuLaunchHostFunc(CUstream(0x1230), Some(wait_for_go), nobody)), 400);
    assert_eq!(cu!(cuStreamAddCallback(stream, None, nobody, 0)), 1);
    assert_eq!(cu!(cuStreamAddCallback(stream, Some(run_callback), nobody, 1)), 1);
    ok!(cuStreamBeginCapture_v2(stream, 0));
    assert_eq!(cu!(cuLaunchHostFunc(stream, Some(wait_for_go), nobody)), 900);
    let mut graph = CUgraph::NULL;
    assert_eq!(cu!(cuStreamEndCapture(stream, &raw mut graph)), 901);
}
