//! Tests that correct work is recorded and not refused, and that it completes as on a device: later, and in
//! the order of streams.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::{fs, ptr, thread};

use serde_json::json;
use vgpu_abi::driver::{
    CUevent, CUgraph, CUgraphExec, CUgraphExecUpdateResultInfo, CUgraphNode, CUmodule, CUstream,
};

use crate::bench::RecordingBench;

const NONE: CUstream = CUstream::NULL;

/// Queries an event until the status is not "not ready", and returns the status.
fn query(bench: &RecordingBench, event: CUevent) -> u32 {
    loop {
        match cu!(bench, cuEventQuery(event)) {
            600 => thread::yield_now(),
            status => return status,
        }
    }
}

#[test]
fn calls_are_recorded_with_names_for_handles_and_addresses() {
    let bench = RecordingBench::new();
    let (stream, memory) = (bench.stream(1), bench.memory(4096));
    assert_eq!(cu!(bench, cuMemcpyHtoDAsync_v2(memory + 16, bench.pinned(), 64, stream)), 0);
    let line = bench.line("cuMemcpyHtoDAsync_v2");
    assert_eq!(
        line["args"],
        json!({ "to": "memory#1+0x10", "from": "pinned#1", "bytes": 64, "stream": "stream#1" })
    );
    assert_eq!((&line["status"], &line["thread"]), (&json!(0), &json!(0)));
    assert_eq!(bench.line("cuStreamCreateWithPriority")["out"], json!({ "stream": "stream#1" }));
}

#[test]
fn copies_of_ordinary_memory_are_noted_and_never_read() {
    let bench = RecordingBench::new();
    let memory = bench.memory(4096);
    // Nothing is mapped there, so a read would end the process.
    let nowhere = ptr::without_provenance_mut(0x10_0000);
    assert_eq!(cu!(bench, cuMemcpyHtoDAsync_v2(memory, nowhere, 4096, NONE)), 0);
    assert_eq!(cu!(bench, cuMemcpyDtoHAsync_v2(nowhere, memory, 4096, NONE)), 0);
    assert_eq!(cu!(bench, cuStreamSynchronize(NONE)), 0);
    assert_eq!(bench.line("cuMemcpyHtoDAsync_v2")["notes"], json!(["pageable"]));
    assert_eq!(bench.line("cuMemcpyDtoHAsync_v2")["args"]["to"], "pageable");
}

#[test]
fn an_event_is_not_ready_at_once() {
    let bench = RecordingBench::new();
    let event = bench.event(0);
    assert_eq!(cu!(bench, cuEventQuery(event)), 0, "never recorded");
    assert_eq!(cu!(bench, cuEventRecord(event, NONE)), 0);
    assert_eq!(cu!(bench, cuEventQuery(event)), 600);
    assert_eq!(query(&bench, event), 0);
    let mut milliseconds = 1.0;
    assert_eq!(cu!(bench, cuEventElapsedTime(&raw mut milliseconds, event, event)), 0);
    assert!(milliseconds.abs() < f32::EPSILON);
}

#[test]
fn held_work_completes_when_it_is_let_go() {
    let bench = RecordingBench::held(&json!({}));
    let (event, word) = (bench.event(0), bench.pinned());
    // SAFETY: pinned memory of a page, aligned, which lives as long as the bench.
    let value = unsafe { AtomicU64::from_ptr(word.cast()) };
    assert_eq!(cu!(bench, cuStreamWriteValue64_v2(NONE, word.addr() as u64, 7, 0)), 0);
    assert_eq!(cu!(bench, cuEventRecord(event, NONE)), 0);
    for _ in 0..100 {
        assert_eq!(cu!(bench, cuEventQuery(event)), 600);
    }
    assert_eq!(value.load(Ordering::Acquire), 0);
    bench.release();
    assert_eq!(query(&bench, event), 0);
    assert_eq!(value.load(Ordering::Acquire), 7);
}

/// The work of the second stream is newer, and completes first unless it waits for an event.
#[test]
fn streams_are_in_order_only_where_they_wait() {
    for wait in [false, true] {
        let bench = RecordingBench::held(&json!({ "order": "newest" }));
        let (one, two, event, words) = (bench.stream(1), bench.stream(1), bench.event(2), bench.pinned());
        let at = words.addr() as u64;
        assert_eq!(cu!(bench, cuStreamWriteValue64_v2(one, at, 1, 0)), 0);
        assert_eq!(cu!(bench, cuEventRecord(event, one)), 0);
        if wait {
            assert_eq!(cu!(bench, cuStreamWaitEvent(two, event, 0)), 0);
        }
        assert_eq!(cu!(bench, cuStreamWriteValue64_v2(two, at, 2, 0)), 0);
        bench.release();
        assert_eq!(cu!(bench, cuCtxSynchronize()), 0);
        // SAFETY: as in the test above.
        let last = unsafe { AtomicU64::from_ptr(words.cast()) }.load(Ordering::Acquire);
        assert_eq!(last, if wait { 2 } else { 1 });
    }
}

#[test]
fn the_legacy_stream_waits_for_blocking_streams_alone() {
    for (flags, last) in [(0, 2), (1, 1)] {
        let bench = RecordingBench::held(&json!({ "order": "newest" }));
        let (stream, words) = (bench.stream(flags), bench.pinned());
        let at = words.addr() as u64;
        assert_eq!(cu!(bench, cuStreamWriteValue64_v2(stream, at, 1, 0)), 0);
        assert_eq!(cu!(bench, cuStreamWriteValue64_v2(NONE, at, 2, 0)), 0);
        bench.release();
        assert_eq!(cu!(bench, cuCtxSynchronize()), 0);
        // SAFETY: as in the tests above.
        let word = unsafe { AtomicU64::from_ptr(words.cast()) }.load(Ordering::Acquire);
        assert_eq!(word, last, "flags {flags}");
    }
}

#[test]
fn a_stream_waits_for_a_word() {
    let bench = RecordingBench::new();
    let (stream, words) = (bench.stream(1), bench.pinned());
    let at = words.addr() as u64;
    assert_eq!(cu!(bench, cuStreamWaitValue32_v2(stream, at + 8, 5, 0)), 0);
    assert_eq!(cu!(bench, cuStreamWriteValue64_v2(stream, at, 1, 0)), 0);
    assert_eq!(cu!(bench, cuStreamQuery(stream)), 600);
    // SAFETY: as in the tests above; the second word of the page.
    let word = unsafe { AtomicU64::from_ptr(words.cast::<u64>().wrapping_add(1)) };
    word.store(6, Ordering::Release);
    assert_eq!(cu!(bench, cuStreamSynchronize(stream)), 0);
    // SAFETY: as above; the first word.
    let written = unsafe { AtomicU64::from_ptr(words.cast()) };
    assert_eq!(written.load(Ordering::Acquire), 1);
}

/// Flag for which host functions of a test wait, and the number of them that have returned.
#[derive(Default)]
struct Functions {
    go: AtomicBool,
    returned: AtomicU32,
}

unsafe extern "C" fn wait_for_go(functions: *mut std::ffi::c_void) {
    // SAFETY: the test's value, which outlives the call.
    let functions = unsafe { &*functions.cast::<Functions>() };
    while !functions.go.load(Ordering::Acquire) {
        thread::yield_now();
    }
    functions.returned.fetch_add(1, Ordering::AcqRel);
}

/// A function that waits delays its stream and the functions of other streams, and nothing else.
#[test]
fn host_functions_are_called_one_after_the_other() {
    let bench = RecordingBench::new();
    let [first, second, free] = [(); 3].map(|()| bench.stream(1));
    let (memory, functions) = (bench.memory(4096), Functions::default());
    let data = ptr::from_ref(&functions).cast_mut().cast();
    for stream in [first, second] {
        assert_eq!(cu!(bench, cuLaunchHostFunc(stream, Some(wait_for_go), data)), 0);
    }
    assert_eq!(cu!(bench, cuMemsetD8Async(memory, 1, 4096, free)), 0);
    assert_eq!(cu!(bench, cuStreamSynchronize(free)), 0);
    assert_eq!(functions.returned.load(Ordering::Acquire), 0);
    assert_eq!([first, second].map(|stream| cu!(bench, cuStreamQuery(stream))), [600; 2]);
    functions.go.store(true, Ordering::Release);
    for stream in [first, second] {
        assert_eq!(cu!(bench, cuStreamSynchronize(stream)), 0);
    }
    assert_eq!(functions.returned.load(Ordering::Acquire), 2);
}

#[test]
fn a_call_that_waits_is_recorded_as_one() {
    let bench = RecordingBench::new();
    let (stream, words) = (bench.stream(1), bench.pinned());
    let at = words.addr() as u64;
    let caller = format!("/proc/self/task/{}/stat", rustix::thread::gettid());
    // The work is held until the thread below sees this one sleep, either in the call or for the library's
    // lock. In the latter case the call may find its work complete, and is tried again.
    let waited = (0..100).any(|_| {
        bench.hold();
        assert_eq!(cu!(bench, cuStreamWriteValue64_v2(stream, at, 1, 0)), 0);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !fs::read_to_string(&caller).expect("a thread's state").contains(") S ") {
                    thread::yield_now();
                }
                bench.release();
            });
            assert_eq!(cu!(bench, cuStreamSynchronize(stream)), 0);
        });
        bench.line("cuStreamSynchronize")["notes"] == json!(["waited"])
    });
    assert!(waited);
}

#[test]
fn failures_and_faults_come_when_they_are_wanted() {
    let bench = RecordingBench::with(&json!({
        "failures": [{ "call": "cuMemAlloc_v2", "nth": 2, "status": 2 }],
        "fault": { "launch": 2, "status": 700 },
    }));
    bench.memory(64);
    assert_eq!(cu!(bench, cuMemAlloc_v2(ptr::from_mut(&mut 0), 64)), 2);
    let event = bench.event(2);
    let function = bench.function();
    // The fault must not come before the event is recorded: a lost context refuses that, too.
    bench.hold();
    for _ in 0..2 {
        assert_eq!(bench.launch(function, 32, 0, 12, NONE), 0);
    }
    assert_eq!(cu!(bench, cuEventRecord(event, NONE)), 0);
    bench.release();
    assert_eq!(query(&bench, event), 700);
    assert_eq!(cu!(bench, cuMemAlloc_v2(ptr::from_mut(&mut 0), 64)), 700, "the context is lost");
    assert!(bench.lines().iter().all(|line| line["refused"].is_null()));
}

#[test]
fn a_captured_graph_is_launched() {
    let bench = RecordingBench::new();
    let (stream, words, event) = (bench.stream(1), bench.pinned(), bench.event(2));
    let function = bench.function();
    let (mut graph, mut exec) = (CUgraph::NULL, CUgraphExec::NULL);
    assert_eq!(cu!(bench, cuStreamBeginCapture_v2(stream, 2)), 0);
    assert_eq!(bench.launch(function, 32, 0, 12, stream), 0);
    assert_eq!(cu!(bench, cuStreamWriteValue64_v2(stream, words.addr() as u64, 9, 0)), 0);
    assert_eq!(cu!(bench, cuStreamEndCapture(stream, &raw mut graph)), 0);
    assert_eq!(cu!(bench, cuGraphInstantiateWithFlags(&raw mut exec, graph, 0)), 0);
    assert_eq!(cu!(bench, cuGraphDestroy(graph)), 0);
    // SAFETY: as in the tests above.
    let word = unsafe { AtomicU64::from_ptr(words.cast()) };
    assert_eq!(word.load(Ordering::Acquire), 0);
    assert_eq!(cu!(bench, cuGraphLaunch(exec, stream)), 0);
    assert_eq!(cu!(bench, cuEventRecord(event, stream)), 0);
    assert_eq!(query(&bench, event), 0);
    assert_eq!(word.load(Ordering::Acquire), 9);
}

/// Each node depends on the nodes that were set for it. A node that nothing joins is no error if it was
/// removed from the dependencies of the stream's next node.
#[test]
fn dependencies_of_a_capture_can_be_set() {
    let bench = RecordingBench::new();
    let (stream, memory) = (bench.stream(1), bench.memory(4096));
    let depend = |nodes: &[CUgraphNode], flags: u32| {
        let nodes = nodes.as_ptr().cast_mut();
        cu!(bench, cuStreamUpdateCaptureDependencies(stream, nodes, usize::from(!nodes.is_null()), flags))
    };
    assert_eq!(bench.captured(stream), (0, CUgraph::NULL, vec![]));
    assert_eq!(cu!(bench, cuStreamBeginCapture_v2(stream, 2)), 0);
    // The relaxed mode permits what the other modes forbid.
    bench.memory(64);
    let fill = || {
        assert_eq!(cu!(bench, cuMemsetD8Async(memory, 0, 16, stream)), 0);
        let (status, graph, nodes) = bench.captured(stream);
        assert_eq!((status, nodes.len()), (0, 1));
        (graph, nodes[0])
    };
    let (graph, one) = fill();
    assert_eq!(cu!(bench, cuStreamUpdateCaptureDependencies(stream, ptr::null_mut(), 0, 1)), 0);
    assert_eq!(bench.captured(stream).2, []);
    let (_, two) = fill();
    assert_eq!(depend(&[one], 0), 0);
    assert_eq!(bench.captured(stream).2, [two, one]);
    fill();
    assert_eq!(depend(&[one], 1), 0);
    let mut ended = CUgraph::NULL;
    assert_eq!(cu!(bench, cuStreamEndCapture(stream, &raw mut ended)), 0);
    assert_eq!(ended, graph);
    let (mut exec, mut other) = (CUgraphExec::NULL, CUgraph::NULL);
    assert_eq!(cu!(bench, cuGraphInstantiateWithFlags(&raw mut exec, ended, 0)), 0);
    // Three fills, each depending on the previous one, have another shape.
    assert_eq!(cu!(bench, cuStreamBeginCapture_v2(stream, 2)), 0);
    for _ in 0..3 {
        fill();
    }
    assert_eq!(cu!(bench, cuStreamEndCapture(stream, &raw mut other)), 0);
    let none = CUgraphNode::NULL;
    let mut info = CUgraphExecUpdateResultInfo { result: 0, error_node: none, error_from_node: none };
    assert_eq!(cu!(bench, cuGraphExecUpdate_v2(exec, other, &raw mut info)), 910);
    assert_eq!(info.result, 2, "the topology changed");
    assert_eq!(cu!(bench, cuGraphExecUpdate_v2(exec, ended, &raw mut info)), 0);
}

/// Two launches of one graph run in order even if their streams are not ordered.
#[test]
fn launches_of_a_graph_come_one_after_the_other() {
    let bench = RecordingBench::new();
    let [one, two, three] = [0; 3].map(|_| bench.stream(1));
    let (words, memory) = (bench.pinned(), bench.memory(4096));
    let (mut graph, mut exec) = (CUgraph::NULL, CUgraphExec::NULL);
    assert_eq!(cu!(bench, cuStreamBeginCapture_v2(one, 2)), 0);
    assert_eq!(bench.launch(bench.function(), 32, 0, 12, one), 0);
    assert_eq!(cu!(bench, cuStreamEndCapture(one, &raw mut graph)), 0);
    assert_eq!(cu!(bench, cuGraphInstantiateWithFlags(&raw mut exec, graph, 0)), 0);
    assert_eq!(cu!(bench, cuStreamWaitValue32_v2(one, words.addr() as u64, 1, 0)), 0);
    assert_eq!(cu!(bench, cuGraphLaunch(exec, one)), 0);
    assert_eq!(cu!(bench, cuGraphLaunch(exec, two)), 0);
    // Work completes oldest first, and the second launch is older than this work.
    assert_eq!(cu!(bench, cuMemsetD8Async(memory, 0, 16, three)), 0);
    assert_eq!(cu!(bench, cuStreamSynchronize(three)), 0);
    assert_eq!(cu!(bench, cuStreamQuery(two)), 600);
    // SAFETY: as in the tests above.
    unsafe { AtomicU64::from_ptr(words.cast()) }.store(1, Ordering::Release);
    assert_eq!(cu!(bench, cuStreamSynchronize(two)), 0);
    assert_eq!(cu!(bench, cuStreamQuery(one)), 0);
}

#[test]
fn text_that_is_no_ptx_has_a_log() {
    let bench = RecordingBench::new();
    let (mut module, mut log) = (CUmodule::NULL, [0_u8; 64]);
    let mut options = [5, 6];
    let mut values = [log.as_mut_ptr().cast(), ptr::without_provenance_mut(log.len())];
    let image = c".version 8.0\n.target sm_61\nnonsense";
    let status = cu!(
        bench,
        cuModuleLoadDataEx(
            &raw mut module,
            image.as_ptr().cast(),
            2,
            options.as_mut_ptr(),
            values.as_mut_ptr()
        )
    );
    assert_eq!(status, 218);
    let length = values[1].addr();
    assert!(length > 1 && log[..length - 1].iter().all(|&byte| byte != 0), "{log:?}");
}

#[test]
fn virtual_memory_is_memory_once_it_may_be_accessed() {
    let bench = RecordingBench::new();
    let address = bench.mapped();
    let right = vgpu_abi::driver::CUmemAccessDesc {
        location: vgpu_abi::driver::CUmemLocation { kind: 1, id: 0 },
        flags: 3,
    };
    assert_eq!(cu!(bench, cuMemSetAccess(address, 2 << 20, &raw const right, 1)), 0);
    assert_eq!(cu!(bench, cuMemsetD8Async(address + 16, 0, 32, NONE)), 0);
    assert_eq!(bench.line("cuMemsetD8Async")["args"]["to"], "reserved#1+0x10");
    assert_eq!(cu!(bench, cuStreamSynchronize(NONE)), 0);
    assert_eq!(cu!(bench, cuMemUnmap(address, 2 << 20)), 0);
    assert_eq!(cu!(bench, cuMemAddressFree(address, 8 << 20)), 0);
}
