//! Edges of captured graphs: which are programmatic, and which queries lose what.

use std::ffi::c_void;
use std::ptr;

use vgpu_abi::driver::{
    CUfunction, CUgraph, CUgraphExec, CUgraphNode, CUlaunchAttribute, CUlaunchConfig, CUstream,
    launch_attribute,
};

use super::capture::{RELAXED, Scene, end, kinds, nodes, scene, tips};
use crate::calls::*;
use crate::case::{Case, cases};
use crate::process::not_applicable;

pub const CASES: &[Case] = cases![
    "edges":
    kernels_that_may_overlap_have_programmatic_edges,
    edges_are_the_programs_where_it_gives_them,
    edges_are_added_and_listed,
];

/// `CUgraphEdgeData` of an edge between any nodes.
const FULL: [u8; 8] = [0; 8];
/// `CUgraphEdgeData` of a programmatic edge between kernels.
const PROGRAMMATIC: [u8; 8] = [1, 0, 1, 0, 0, 0, 0, 0];
/// Result of a query that would hide an edge's data.
const LOSSY: u32 = 402;

/// Returns a scene on a device whose kernels may overlap.
fn overlapping() -> Scene {
    let scene = scene();
    let mut major = 0;
    ok!(cuDeviceGetAttribute(&raw mut major, 75, 0));
    if major < 9 {
        not_applicable("kernels overlap from compute capability 9.0 on");
    }
    scene
}

/// Launches a kernel that may start before its predecessor has ended.
fn launch_early(kernel: CUfunction, stream: CUstream) -> u32 {
    let mut value = [0; 8];
    value[0] = 1;
    let attribute = CUlaunchAttribute { id: launch_attribute::PROGRAMMATIC_STREAM_SERIALIZATION, value };
    let (attributes, attribute_count) = (&raw const attribute, 1);
    let config = CUlaunchConfig {
        grid: [1; 3],
        block: [32, 1, 1],
        shared_bytes: 0,
        stream,
        attributes,
        attribute_count,
    };
    cu!(cuLaunchKernelEx(&raw const config, kernel, ptr::null_mut(), ptr::null_mut()))
}

/// Returns the data of a node's edges, by the positions of the earlier nodes in the graph.
fn edges(graph: CUgraph, node: usize) -> Vec<(usize, [u8; 8])> {
    let all = nodes(graph);
    let (mut found, mut data, mut count) = ([CUgraphNode(0); 8], [[9; 8]; 8], 8);
    let (nodes, edges) = (found.as_mut_ptr(), data.as_mut_ptr());
    ok!(cuGraphNodeGetDependencies_v2(all[node], nodes, edges, &raw mut count));
    let place = |node: &CUgraphNode| all.iter().position(|other| other == node).unwrap();
    let mut edges: Vec<_> = found[..count].iter().map(place).zip(data).collect();
    edges.sort_unstable();
    let mut plain = 8;
    let status = cu!(cuGraphNodeGetDependencies(all[node], found.as_mut_ptr(), &raw mut plain));
    let lossy = edges.iter().any(|(_, data)| *data != FULL);
    assert_eq!((status, plain), if lossy { (LOSSY, 8) } else { (0, count) });
    edges
}

/// A kernel that may overlap does so with a kernel directly before it in its stream, and with no other work.
fn kernels_that_may_overlap_have_programmatic_edges() {
    let Scene { stream, other, event, kernel, address } = overlapping();
    ok!(cuStreamBeginCapture_v2(stream, RELAXED));
    assert_eq!(launch_early(kernel, stream), 0, "0: the first");
    assert_eq!(launch_early(kernel, stream), 0, "1: after a kernel");
    assert_eq!(tips(stream).len(), 1, "the query of the stream's next edges loses nothing");
    assert_eq!(launch(kernel, stream, &mut []), 0, "2: may not overlap");
    ok!(cuMemsetD8Async(address, 1, 100, stream));
    assert_eq!(launch_early(kernel, stream), 0, "4: after a fill");
    ok!(cuEventRecord(event, stream));
    ok!(cuStreamWaitEvent(other, event, 0));
    assert_eq!(launch_early(kernel, stream), 0, "5: after a kernel for which another stream waits, too");
    ok!(cuMemsetD8Async(address, 1, 100, other));
    ok!(cuEventRecord(event, other));
    ok!(cuStreamWaitEvent(stream, event, 0));
    assert_eq!(launch(kernel, stream, &mut []), 0, "7: after both streams");
    let graph = end(stream);
    assert_eq!(kinds(graph), [0, 0, 0, 2, 0, 0, 2, 0]);
    let found: Vec<_> = (0..8).map(|node| edges(graph, node)).collect();
    let expected = [
        vec![],
        vec![(0, PROGRAMMATIC)],
        vec![(1, FULL)],
        vec![(2, FULL)],
        vec![(3, FULL)],
        vec![(4, PROGRAMMATIC)],
        vec![(4, FULL)],
        vec![(5, FULL), (6, FULL)],
    ];
    assert_eq!(found, expected);
    let mut exec = CUgraphExec(0);
    ok!(cuGraphInstantiateWithFlags(&raw mut exec, graph, 0));
    for _ in 0..3 {
        ok!(cuGraphLaunch(exec, stream));
    }
    ok!(cuCtxSynchronize());
    // A graph that differs in an edge's data has another shape.
    ok!(cuStreamBeginCapture_v2(stream, RELAXED));
    assert_eq!(launch_early(kernel, stream), 0);
    assert_eq!(launch(kernel, stream, &mut []), 0);
    let full = end(stream);
    ok!(cuStreamBeginCapture_v2(stream, RELAXED));
    assert_eq!(launch_early(kernel, stream), 0);
    assert_eq!(launch_early(kernel, stream), 0);
    let early = end(stream);
    ok!(cuGraphInstantiateWithFlags(&raw mut exec, early, 0));
    let (mut node, mut result) = (CUgraphNode(0), 9);
    assert_eq!(cu!(cuGraphExecUpdate(exec, full, &raw mut node, &raw mut result)), 910);
    assert_eq!(cu!(cuGraphExecUpdate(exec, early, &raw mut node, &raw mut result)), 0);
}

/// The data that a program gives to the edges of a stream's next node is what later queries return.
fn edges_are_the_programs_where_it_gives_them() {
    let Scene { stream, kernel, .. } = overlapping();
    ok!(cuStreamBeginCapture_v2(stream, RELAXED));
    assert_eq!(launch(kernel, stream, &mut []), 0);
    let mut first = tips(stream)[0];
    let data = PROGRAMMATIC;
    ok!(cuStreamUpdateCaptureDependencies_v2(stream, &raw mut first, &raw const data, 1, 1));
    let (mut state, mut id, mut graph) = (0, 0, CUgraph(0));
    let (mut nodes, mut count) = (ptr::null(), 0);
    let (out, list) = ((&raw mut state, &raw mut id, &raw mut graph), (&raw mut nodes, &raw mut count));
    let lossy = cu!(cuStreamGetCaptureInfo_v2(stream, out.0, out.1, out.2, list.0, list.1));
    assert_eq!(lossy, LOSSY);
    ok!(cuStreamGetCaptureInfo(stream, out.0, out.1));
    let mut edge: *const c_void = ptr::null();
    ok!(cuStreamGetCaptureInfo_v3(stream, out.0, out.1, out.2, list.0, &raw mut edge, list.1));
    assert_eq!((state, count), (1, 1));
    // SAFETY: the query stored an array of one edge.
    assert_eq!(unsafe { edge.cast::<[u8; 8]>().read() }, PROGRAMMATIC);
    assert_eq!(launch(kernel, stream, &mut []), 0);
    let graph = end(stream);
    assert_eq!(edges(graph, 1), [(0, PROGRAMMATIC)]);
    let mut exec = CUgraphExec(0);
    ok!(cuGraphInstantiateWithFlags(&raw mut exec, graph, 0));
    ok!(cuGraphLaunch(exec, stream));
    ok!(cuCtxSynchronize());
}

/// Returns the edges of a graph with their data, by the positions of both nodes.
fn all_edges(graph: CUgraph) -> Vec<(usize, usize, [u8; 8])> {
    let all = nodes(graph);
    let (mut from, mut to, mut data, mut count) = ([CUgraphNode(0); 8], [CUgraphNode(0); 8], [[9; 8]; 8], 8);
    let (from_place, to_place, data_place) = (from.as_mut_ptr(), to.as_mut_ptr(), data.as_mut_ptr());
    ok!(cuGraphGetEdges_v2(graph, from_place, to_place, data_place, &raw mut count));
    assert!(from[count..].iter().chain(&to[count..]).all(|node| node.0 == 0), "the rest is null");
    let place = |node: &CUgraphNode| all.iter().position(|other| other == node).unwrap();
    let mut edges: Vec<_> = (0..count).map(|at| (place(&from[at]), place(&to[at]), data[at])).collect();
    edges.sort_unstable();
    let mut plain = 8;
    let status = cu!(cuGraphGetEdges(graph, from_place, to_place, &raw mut plain));
    let lossy = edges.iter().any(|(.., data)| *data != FULL);
    assert_eq!((status, plain), if lossy { (LOSSY, 8) } else { (0, count) });
    edges
}

/// Edges are added between nodes that exist, with data that fits the nodes.
fn edges_are_added_and_listed() {
    let Scene { stream, kernel, address, .. } = overlapping();
    ok!(cuStreamBeginCapture_v2(stream, RELAXED));
    assert_eq!(launch_early(kernel, stream), 0);
    assert_eq!(launch_early(kernel, stream), 0);
    ok!(cuMemsetD8Async(address, 1, 100, stream));
    assert_eq!(launch(kernel, stream, &mut []), 0);
    let graph = end(stream);
    let first = [(0, 1, PROGRAMMATIC), (1, 2, FULL), (2, 3, FULL)];
    assert_eq!(all_edges(graph), first);
    let all = nodes(graph);
    let add = |from: usize, to: usize, data: Option<[u8; 8]>| {
        let (from, to) = (&raw const all[from], &raw const all[to]);
        if let Some(data) = &data {
            cu!(cuGraphAddDependencies_v2(graph, from, to, ptr::from_ref(data), 1))
        } else {
            cu!(cuGraphAddDependencies(graph, from, to, 1))
        }
    };
    assert_eq!(add(1, 2, None), 1, "it exists");
    assert_eq!(add(0, 2, Some(PROGRAMMATIC)), 1, "a fill");
    assert_eq!(all_edges(graph), first, "nothing was added");
    assert_eq!((add(0, 3, Some(PROGRAMMATIC)), add(0, 2, None)), (0, 0));
    let both = [(0, 1, PROGRAMMATIC), (0, 2, FULL), (0, 3, PROGRAMMATIC), (1, 2, FULL), (2, 3, FULL)];
    assert_eq!(all_edges(graph), both);
    assert_eq!(edges(graph, 3), [(0, PROGRAMMATIC), (2, FULL)]);
    let mut exec = CUgraphExec(0);
    ok!(cuGraphInstantiateWithFlags(&raw mut exec, graph, 0));
    ok!(cuGraphLaunch(exec, stream));
    ok!(cuCtxSynchronize());
    ok!(cuGraphExecDestroy(exec));
    ok!(cuGraphDestroy(graph));
}
