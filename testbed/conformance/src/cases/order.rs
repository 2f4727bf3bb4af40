//! Order: of streams, events, synchronizes, frees and graphs. Kernels append digits to a number, so that the
//! number tells in which order they ran. A host may run work that CUDA does not order in any order.

use std::collections::BTreeSet;

use vgpu_abi::driver::{CUevent, CUfunction, CUgraph, CUgraphExec, CUgraphNode, CUstream, KernelNodeParams};

use crate::calls::*;
use crate::case::{Case, cases};
use crate::kernels::{launch_with, load_kernels, read_number};

pub const CASES: &[Case] = cases![
    "order":
    a_stream_keeps_its_order,
    an_event_orders_streams,
    a_synchronize_orders_all_later_work,
    the_default_stream_waits_for_blocking_streams_and_they_for_it,
    a_free_orders_all_later_work,
    events_order_chains_of_streams,
    times_of_events_go_forward,
    nothing_is_lost_between_streams,
    a_graph_keeps_the_order_of_its_nodes,
    launches_of_a_graph_run_one_after_the_other,
    a_graph_is_launched_changed_and_destroyed,
];

const NO_STREAM: CUstream = CUstream(0);
/// Flag of streams that the default stream does not wait for.
const NON_BLOCKING: u32 = 1;
const NO_TIMING: u32 = 2;
/// How often a case runs work, so that a host that draws an order at random shows a wrong one.
const ROUNDS: usize = 40;

/// The number, the kernel that appends a digit to it, and streams.
struct Digits {
    number: u64,
    digit: CUfunction,
    streams: Vec<CUstream>,
    event: CUevent,
}

impl Digits {
    /// Makes the number, and a stream for each of the flags.
    fn new(flags: &[u32]) -> Self {
        begin();
        Self {
            number: alloc(4),
            digit: function(load_kernels(), "digit"),
            streams: flags.iter().map(|&flags| get!(CUstream, cuStreamCreate(flags))).collect(),
            event: get!(CUevent, cuEventCreate(NO_TIMING)),
        }
    }

    /// Launches the kernel that appends a digit.
    fn append(&self, stream: CUstream, digit: u32) {
        launch_with(self.digit, [1, 32], stream, self.number, &[digit]);
    }

    /// Orders all later work of `later` after all work that `earlier` has by now.
    fn order(&self, earlier: CUstream, later: CUstream) {
        ok!(cuEventRecord(self.event, earlier));
        ok!(cuStreamWaitEvent(later, self.event, 0));
    }

    fn clear(&self) {
        ok!(cuMemsetD32_v2(self.number, 0, 1));
        ok!(cuCtxSynchronize());
    }

    /// Runs a program many times, each of which must leave one of these numbers.
    fn expect(&self, allowed: &[u32], program: impl Fn(&[CUstream])) {
        for _ in 0..ROUNDS {
            self.clear();
            program(&self.streams);
            let number = read_number(self.number);
            assert!(allowed.contains(&number), "{number} is none of {allowed:?}");
        }
    }
}

fn a_stream_keeps_its_order() {
    let digits = Digits::new(&[NON_BLOCKING; 2]);
    digits.expect(&[123, 213, 132], |streams| {
        digits.append(streams[0], 1);
        digits.append(streams[1], 2);
        digits.append(streams[0], 3);
    });
}

fn an_event_orders_streams() {
    let digits = Digits::new(&[NON_BLOCKING; 2]);
    digits.expect(&[12], |streams| {
        digits.append(streams[0], 1);
        digits.order(streams[0], streams[1]);
        digits.append(streams[1], 2);
    });
}

fn a_synchronize_orders_all_later_work() {
    let digits = Digits::new(&[NON_BLOCKING; 4]);
    digits.expect(&[12345], |streams| {
        digits.append(streams[0], 1);
        ok!(cuStreamSynchronize(streams[0]));
        digits.append(streams[1], 2);
        ok!(cuCtxSynchronize());
        // A stream that has had no work, and one that is made after the synchronize.
        digits.append(streams[3], 3);
        ok!(cuCtxSynchronize());
        let new = get!(CUstream, cuStreamCreate(NON_BLOCKING));
        digits.append(new, 4);
        ok!(cuStreamDestroy_v2(new));
        ok!(cuCtxSynchronize());
        digits.append(streams[0], 5);
        // An event of a stream without work is complete after all that.
        ok!(cuStreamSynchronize(streams[0]));
        ok!(cuEventRecord(digits.event, streams[2]));
        ok!(cuEventSynchronize(digits.event));
    });
}

fn times_of_events_go_forward() {
    let digits = Digits::new(&[NON_BLOCKING]);
    let events: Vec<CUevent> = (0..20).map(|_| get!(CUevent, cuEventCreate(0))).collect();
    for &event in &events {
        digits.append(digits.streams[0], 0);
        ok!(cuEventRecord(event, digits.streams[0]));
    }
    ok!(cuCtxSynchronize());
    for pair in events.windows(2) {
        assert!(get!(f32, cuEventElapsedTime(pair[0], pair[1])) > 0.0);
    }
}

fn the_default_stream_waits_for_blocking_streams_and_they_for_it() {
    let digits = Digits::new(&[0, 0, NON_BLOCKING]);
    digits.expect(&[123], |streams| {
        digits.append(streams[0], 1);
        digits.append(NO_STREAM, 2);
        digits.append(streams[1], 3);
        // The blocking streams' earlier work is complete when the default stream's is.
        ok!(cuStreamSynchronize(NO_STREAM));
    });
    digits.expect(&[12, 21], |streams| {
        digits.append(streams[2], 1);
        digits.append(NO_STREAM, 2);
    });
}

fn a_free_orders_all_later_work() {
    let digits = Digits::new(&[NON_BLOCKING; 2]);
    digits.expect(&[12], |streams| {
        digits.append(streams[0], 1);
        ok!(cuMemFree_v2(alloc(16)));
        digits.append(streams[1], 2);
    });
}

fn events_order_chains_of_streams() {
    let digits = Digits::new(&[NON_BLOCKING; 3]);
    let timed = [0; 2].map(|_| get!(CUevent, cuEventCreate(0)));
    digits.expect(&[1234], |streams| {
        ok!(cuEventRecord(timed[0], streams[0]));
        digits.append(streams[0], 1);
        digits.order(streams[0], streams[1]);
        digits.append(streams[1], 2);
        ok!(cuEventRecord(timed[1], streams[1]));
        ok!(cuStreamWaitEvent(streams[2], timed[1], 0));
        ok!(cuStreamWaitEvent(streams[0], timed[1], 0));
        digits.append(streams[2], 3);
        digits.order(streams[2], streams[0]);
        digits.append(streams[0], 4);
        ok!(cuStreamSynchronize(streams[0]));
        assert!(get!(f32, cuEventElapsedTime(timed[0], timed[1])) >= 0.0);
    });
}

fn nothing_is_lost_between_streams() {
    let digits = Digits::new(&[NON_BLOCKING, NON_BLOCKING, 0, 0]);
    let streams = [&digits.streams[..], &[NO_STREAM]].concat();
    digits.clear();
    for round in 0..100_usize {
        let stream = streams[round % 5];
        digits.append(stream, 0);
        let (data, wanted) = (alloc(64), [round as u8; 64]);
        ok!(cuMemcpyHtoDAsync_v2(data, wanted.as_ptr().cast(), 64, stream));
        digits.order(stream, streams[(round + 1) % 5]);
        if round % 7 == 0 {
            ok!(cuStreamSynchronize(stream));
            assert_eq!(download(data, 64), wanted);
        }
        ok!(cuMemFree_v2(data));
    }
    ok!(cuEventSynchronize(digits.event));
    assert_eq!(read_number(digits.number), 0);
}

/// Captures what `program` submits to the first stream, and to streams that join the capture. Returns the
/// graph and the executable graph instantiated from it.
fn capture(digits: &Digits, program: impl FnOnce()) -> (CUgraph, CUgraphExec) {
    let stream = digits.streams[0];
    let mut graph = CUgraph(0);
    ok!(cuStreamBeginCapture_v2(stream, 0));
    program();
    ok!(cuStreamEndCapture(stream, &raw mut graph));
    (graph, get!(CUgraphExec, cuGraphInstantiateWithFlags(graph, 0)))
}

/// Captures digit 1, then digits 2 and 3 in either order, then digit 4.
fn capture_fork(digits: &Digits) -> CUgraphExec {
    let (first, second) = (digits.streams[0], digits.streams[1]);
    let fork = || {
        digits.append(first, 1);
        digits.order(first, second);
        digits.append(first, 2);
        digits.append(second, 3);
        digits.order(second, first);
        digits.append(first, 4);
    };
    capture(digits, fork).1
}

fn a_graph_keeps_the_order_of_its_nodes() {
    let digits = Digits::new(&[NON_BLOCKING; 2]);
    let graph = capture_fork(&digits);
    digits.expect(&[12345, 13245], |streams| {
        ok!(cuGraphLaunch(graph, streams[0]));
        digits.append(streams[0], 5);
    });
}

fn launches_of_a_graph_run_one_after_the_other() {
    let digits = Digits::new(&[NON_BLOCKING; 2]);
    let graph = capture_fork(&digits);
    for _ in 0..ROUNDS {
        digits.clear();
        for &stream in &digits.streams {
            ok!(cuGraphLaunch(graph, stream));
        }
        let text = read_number(digits.number).to_string();
        let different = |text: &str| text.chars().collect::<BTreeSet<char>>().len();
        assert_eq!((text.len(), different(&text[..4]), different(&text[4..])), (8, 4, 4), "{text}");
    }
}

fn a_graph_is_launched_changed_and_destroyed() {
    let digits = Digits::new(&[NON_BLOCKING; 2]);
    let stream = digits.streams[0];
    let (graph, exec) = capture(&digits, || {
        ok!(cuMemsetD32Async(digits.number, 6, 1, stream));
        digits.append(stream, 1);
        digits.append(stream, 2);
    });
    let mut nodes = [CUgraphNode(0); 3];
    let mut count = nodes.len();
    ok!(cuGraphGetNodes(graph, nodes.as_mut_ptr(), &raw mut count));
    assert_eq!(count, 3);
    ok!(cuGraphLaunch(exec, stream));
    assert_eq!(read_number(digits.number), 612);
    // The launch before the change does not see it.
    ok!(cuGraphLaunch(exec, stream));
    let mut params = std::mem::MaybeUninit::<KernelNodeParams>::uninit();
    ok!(cuGraphKernelNodeGetParams_v2(nodes[2], params.as_mut_ptr()));
    // SAFETY: filled in by the call, which succeeded.
    let mut params = unsafe { params.assume_init() };
    let (mut address, mut digit) = (digits.number, 5_u32);
    let mut values = [(&raw mut address).cast(), (&raw mut digit).cast()];
    params.params = values.as_mut_ptr();
    ok!(cuGraphExecKernelNodeSetParams_v2(exec, nodes[2], &raw const params));
    digits.append(stream, 9);
    assert_eq!(read_number(digits.number), 6129);
    ok!(cuGraphLaunch(exec, stream));
    assert_eq!(read_number(digits.number), 615);
    // What was launched is carried out although the graph ends.
    ok!(cuMemsetD32Async(digits.number, 0, 1, stream));
    ok!(cuGraphLaunch(exec, stream));
    ok!(cuGraphExecDestroy(exec));
    ok!(cuGraphDestroy(graph));
    assert_eq!(read_number(digits.number), 615);
}
