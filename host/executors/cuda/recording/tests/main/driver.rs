//! Tests of what a driver may do, as the options select it: reservations at other addresses, calls that wait,
//! full queues, slow ends. `vgpu-device probe` compares most of it with recorded answers of a driver.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use vgpu_abi::driver::CUcontext;

use crate::bench::RecordingBench;

/// Time after which a call is taken to wait.
const WAITS: Duration = Duration::from_millis(500);

/// Time limit of calls that must not wait.
const PATIENCE: Duration = Duration::from_mins(1);

fn reserve(bench: &RecordingBench, bytes: usize, wish: u64) -> (u32, u64) {
    let mut address = 0;
    (cu!(bench, cuMemAddressReserve(&raw mut address, bytes, 0, wish, 0)), address)
}

#[test]
fn reservations_are_answered_by_size_and_wish() {
    let bench = RecordingBench::with(&json!({ "reservations": [
        { "least_bytes": 1_u64 << 40, "status": 2 },
        { "wish": 0x2000_0000_0000_u64, "from": 0x6000_0000_0000_u64 },
        { "least_bytes": 1_u64 << 38, "status": 1 },
    ] }));
    assert_eq!(reserve(&bench, 1 << 40, 0x2000_0000_0000).0, 2);
    assert_eq!(reserve(&bench, 1 << 39, 0x2000_0000_0000), (0, 0x6000_0000_0000));
    assert_eq!(reserve(&bench, 1 << 38, 0x3000_0000_0000).0, 1);
    assert_eq!(reserve(&bench, 1 << 30, 0x4000_0000_0000), (0, 0x4000_0000_0000));
    let behind = 0x4000_0000_0000 + (1 << 30);
    assert_eq!(reserve(&bench, 1 << 30, 0x4000_0000_0000), (0, behind), "the next free addresses");
}

/// Runs `call` in another thread with the context, and returns a receiver of its status.
fn aside(
    bench: &'static RecordingBench,
    context: CUcontext,
    call: impl FnOnce() -> u32 + Send + 'static,
) -> mpsc::Receiver<u32> {
    let (sender, receiver) = mpsc::channel();
    let (begins, begun) = mpsc::channel();
    thread::spawn(move || {
        assert_eq!(cu!(bench, cuCtxSetCurrent(context)), 0);
        begins.send(()).unwrap();
        sender.send(call()).unwrap();
    });
    begun.recv_timeout(PATIENCE).unwrap();
    receiver
}

/// Creates a library that lives as long as the test's process, because threads use it, with its context.
fn leaked(options: &Value) -> (&'static RecordingBench, CUcontext) {
    let bench = Box::leak(Box::new(RecordingBench::cold(options)));
    assert_eq!(cu!(bench, cuInit(0)), 0);
    (bench, bench.context())
}

/// While a call waits for the device, submissions wait with it, and queries return.
#[test]
fn calls_that_wait_keep_submissions_waiting() {
    let (bench, context) = leaked(&json!({ "blocking": ["cuModuleUnload"] }));
    let (module, stream, event, word) = (bench.module(), bench.stream(1), bench.event(2), bench.pinned());
    let (address, other) = (word.addr() as u64, bench.stream(1));
    assert_eq!(cu!(bench, cuStreamWaitValue32_v2(stream, address, 1, 0)), 0);
    let unload = aside(bench, context, move || cu!(bench, cuModuleUnload(module)));
    bench.until_held("cuModuleUnload");
    assert!(unload.recv_timeout(WAITS).is_err());
    let record = aside(bench, context, move || cu!(bench, cuEventRecord(event, stream)));
    assert!(record.recv_timeout(WAITS).is_err());
    assert_eq!(cu!(bench, cuStreamQuery(stream)), 600);
    assert_eq!(cu!(bench, cuStreamWriteValue64_v2(other, address + 8, 1, 0)), 0);
    // SAFETY: pinned memory of a page, aligned, which lives as long as the process.
    unsafe { AtomicU32::from_ptr(word.cast()) }.store(1, Ordering::Release);
    assert_eq!((unload.recv(), record.recv()), (Ok(0), Ok(0)));
    assert_eq!(bench.line("cuEventRecord")["notes"], json!(["waited"]));
}

/// Streams share channels, each of which takes a number of pieces of work. A ninth stream shares the first's.
#[test]
fn a_full_channel_keeps_submissions_waiting() {
    let (bench, context) = leaked(&json!({ "queue": 4 }));
    let (memory, word) = (bench.memory(64), bench.pinned());
    let streams: Vec<_> = (0..9).map(|_| bench.stream(1)).collect();
    let (first, ninth) = (streams[0], streams[8]);
    assert_eq!(cu!(bench, cuStreamWaitValue32_v2(first, word.addr() as u64, 1, 0)), 0);
    let fill = move |stream| cu!(bench, cuMemsetD8Async(memory, 0, 16, stream));
    assert_eq!([first, first, first].map(fill), [0; 3]);
    let full = aside(bench, context, move || fill(ninth));
    // The ninth stream does not wait for the word, so its work leaves the channel by itself.
    assert_eq!(full.recv_timeout(PATIENCE), Ok(0));
    let full = aside(bench, context, move || fill(first));
    bench.until_held("cuMemsetD8Async");
    assert!(full.recv_timeout(WAITS).is_err());
    let other = aside(bench, context, move || fill(ninth));
    assert!(other.recv_timeout(WAITS).is_err());
    // SAFETY: as in the test above.
    unsafe { AtomicU32::from_ptr(word.cast()) }.store(1, Ordering::Release);
    assert_eq!((full.recv(), other.recv()), (Ok(0), Ok(0)));
}

#[test]
fn newer_ptx_is_refused_and_other_ptx_takes_its_time() {
    let bench = RecordingBench::with(&json!({ "ptx_version": 80, "compile_ms": 50 }));
    let start = Instant::now();
    bench.module();
    assert!(start.elapsed() >= Duration::from_millis(50));
    assert_eq!(bench.line("cuModuleLoadDataEx")["notes"], json!(["compiled"]));
    assert_eq!(bench.load(c".version 8.1\n.target sm_61\n".as_ptr().cast()).0, 222);
}

/// The calls of `cuInit` are those that a confined worker may make. Here they are made without confinement.
#[test]
fn a_driver_starts_and_ends_slowly() {
    let bench = RecordingBench::with(&json!({ "system_calls": true, "teardown_ms": 50 }));
    let mut context = CUcontext::NULL;
    assert_eq!(cu!(bench, cuCtxCreate_v2(&raw mut context, 0, 0)), 0);
    let start = Instant::now();
    assert_eq!(cu!(bench, cuCtxDestroy_v2(context)), 0);
    assert!(start.elapsed() >= Duration::from_millis(50));
}
