//! Tests of edges of captured graphs that have data.

use std::ptr;

use vgpu_abi::driver::{CUgraph, CUgraphNode, CUlaunchAttribute, CUlaunchConfig, CUstream, launch_attribute};
use vgpu_recording_cuda::Rule;

use crate::bench::RecordingBench;
use crate::refusals::{RuleCase, usual};

const RELAXED: u32 = 2;
const FULL: [u8; 8] = [0; 8];
const PROGRAMMATIC: [u8; 8] = [1, 0, 1, 0, 0, 0, 0, 0];
/// A port of kernels without the type of edge that has it.
const WRONG: [u8; 8] = [1, 0, 0, 0, 0, 0, 0, 0];

/// Starts a capture and adds a kernel or a fill. Returns the stream and the node.
fn captured(bench: &RecordingBench, kernel: bool) -> (CUstream, CUgraphNode) {
    let stream = bench.stream(1);
    let (function, memory) = (bench.function(), bench.memory(64));
    assert_eq!(cu!(bench, cuStreamBeginCapture_v2(stream, RELAXED)), 0);
    let status = if kernel {
        bench.launch(function, 32, 0, 12, stream)
    } else {
        cu!(bench, cuMemsetD8Async(memory, 0, 16, stream))
    };
    assert_eq!(status, 0);
    (stream, bench.captured(stream).2[0])
}

/// Makes the next node of a capture depend on one node by an edge with data. Returns the status.
fn depend(bench: &RecordingBench, stream: CUstream, mut node: CUgraphNode, data: [u8; 8]) -> u32 {
    let (nodes, edges) = (&raw mut node, &raw const data);
    cu!(bench, cuStreamUpdateCaptureDependencies_v2(stream, nodes, edges, 1, 1))
}

/// Calls `cuStreamGetCaptureInfo_v3`. Returns its status and the data of the edges.
fn edges(bench: &RecordingBench, stream: CUstream) -> (u32, Vec<[u8; 8]>) {
    let (mut active, mut id, mut graph) = (0, 0, CUgraph::NULL);
    let (mut nodes, mut edges, mut count) = (ptr::null(), ptr::null(), 0);
    let places = (&raw mut active, &raw mut id, &raw mut graph);
    let list = (&raw mut nodes, &raw mut edges, &raw mut count);
    let (a, b, c) = places;
    let status = cu!(bench, cuStreamGetCaptureInfo_v3(stream, a, b, c, list.0, list.1, list.2));
    // SAFETY: the library states that this much data is valid until its next call.
    let data = unsafe { std::slice::from_raw_parts(edges.cast(), count) };
    (status, data.to_vec())
}

/// One case for each refusal of edge data.
pub const CASES: &[RuleCase] = &[
    (Rule::EdgeData, usual, |b| {
        let (stream, node) = captured(b, true);
        depend(b, stream, node, WRONG)
    }),
    // The earlier node is no kernel.
    (Rule::EdgeData, usual, |b| {
        let (stream, node) = captured(b, false);
        depend(b, stream, node, PROGRAMMATIC)
    }),
    // The later node is no kernel.
    (Rule::EdgeData, usual, |b| {
        let (stream, node) = captured(b, true);
        assert_eq!(depend(b, stream, node, PROGRAMMATIC), 0);
        cu!(b, cuMemsetD8Async(b.memory(64), 0, 16, stream))
    }),
    (Rule::LossyQuery, usual, |b| {
        let (stream, node) = captured(b, true);
        assert_eq!(depend(b, stream, node, PROGRAMMATIC), 0);
        b.captured(stream).0
    }),
];

#[test]
fn a_query_with_a_place_for_edge_data_returns_it() {
    let bench = RecordingBench::new();
    let (stream, node) = captured(&bench, true);
    assert_eq!(edges(&bench, stream), (0, vec![FULL]));
    assert_eq!(depend(&bench, stream, node, PROGRAMMATIC), 0);
    assert_eq!(edges(&bench, stream), (0, vec![PROGRAMMATIC]));
    assert_eq!(bench.launch(bench.function(), 32, 0, 12, stream), 0);
    assert_eq!(edges(&bench, stream), (0, vec![FULL]), "the edge belongs to the kernel now");
}

/// Captures two kernels, the second of them launched with the attribute or not, and returns the graph.
fn pair(bench: &RecordingBench, early: u64) -> CUgraph {
    let (stream, _) = captured(bench, true);
    let mut value = [0; 8];
    value[0] = early;
    let attribute = CUlaunchAttribute { id: launch_attribute::PROGRAMMATIC_STREAM_SERIALIZATION, value };
    let config = CUlaunchConfig {
        grid: [1; 3],
        block: [32, 1, 1],
        shared_bytes: 0,
        stream,
        attributes: &raw const attribute,
        attribute_count: 1,
    };
    let (function, mut params) = (bench.function(), [ptr::null_mut(); 2]);
    let launched =
        cu!(bench, cuLaunchKernelEx(&raw const config, function, params.as_mut_ptr(), ptr::null_mut()));
    assert_eq!(launched, 0);
    let mut graph = CUgraph::NULL;
    assert_eq!(cu!(bench, cuStreamEndCapture(stream, &raw mut graph)), 0);
    graph
}

/// The attribute of a captured launch makes its edge programmatic, which is part of the graph's shape.
#[test]
fn a_captured_launch_with_the_attribute_has_a_programmatic_edge() {
    let bench = RecordingBench::new();
    let [full, early] = [0, 1].map(|early| pair(&bench, early));
    let mut exec = vgpu_abi::driver::CUgraphExec::NULL;
    assert_eq!(cu!(bench, cuGraphInstantiateWithFlags(&raw mut exec, early, 0)), 0);
    let none = CUgraphNode::NULL;
    let mut info =
        vgpu_abi::driver::CUgraphExecUpdateResultInfo { result: 0, error_node: none, error_from_node: none };
    assert_eq!(cu!(bench, cuGraphExecUpdate_v2(exec, full, &raw mut info)), 910);
    assert_eq!(cu!(bench, cuGraphExecUpdate_v2(exec, early, &raw mut info)), 0);
}
