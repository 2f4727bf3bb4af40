//! Stream capture and graphs: what is recorded, what is sent, and what is not allowed meanwhile.

use std::ffi::c_void;
use std::ptr;

use vgpu_abi::driver::{
    CUevent, CUfunction, CUgraph, CUgraphExec, CUgraphNode, CUmodule, CUstream, KernelNodeParams,
};

use crate::calls::*;
use crate::case::{Case, cases};

pub const CASES: &[Case] = cases![
    "capture":
    a_graph_goes_over_once_and_is_launched_by_one_message,
    a_long_graph_goes_through_the_window,
    what_captures_do_not_allow_has_cudas_codes,
    kernel_nodes_can_be_read_and_changed,
];

const GLOBAL: u32 = 0;
const THREAD: u32 = 1;
pub(super) const RELAXED: u32 = 2;

/// Streams that capture, and what is put on them.
pub(super) struct Scene {
    pub(super) stream: CUstream,
    pub(super) other: CUstream,
    pub(super) event: CUevent,
    pub(super) kernel: CUfunction,
    pub(super) address: u64,
}

pub(super) fn scene() -> Scene {
    begin();
    let module = get!(CUmodule, cuModuleLoadData(PTX.as_ptr().cast()));
    let kernel = function(module, "nothing");
    let scene = Scene {
        stream: get!(CUstream, cuStreamCreate(1)),
        other: get!(CUstream, cuStreamCreate(1)),
        event: get!(CUevent, cuEventCreate(2)),
        kernel,
        address: alloc(1 << 20),
    };
    assert_eq!(launch(kernel, scene.stream, &mut []), 0);
    scene
}

fn status(stream: CUstream) -> u32 {
    let mut status = 9;
    ok!(cuStreamIsCapturing(stream, &raw mut status));
    status
}

/// Returns the nodes after which the stream's next node comes.
pub(super) fn tips(stream: CUstream) -> Vec<CUgraphNode> {
    let (mut state, mut count, mut nodes) = (0, 0, ptr::null());
    let none = ptr::null_mut();
    ok!(cuStreamGetCaptureInfo_v2(
        stream,
        &raw mut state,
        ptr::null_mut(),
        none,
        &raw mut nodes,
        &raw mut count
    ));
    // SAFETY: so many nodes lie there until the next call that asks.
    unsafe { std::slice::from_raw_parts(nodes, count) }.to_vec()
}

pub(super) fn end(stream: CUstream) -> CUgraph {
    let mut graph = CUgraph(0);
    ok!(cuStreamEndCapture(stream, &raw mut graph));
    assert_ne!(graph, CUgraph(0));
    graph
}

fn ends_with(stream: CUstream, code: u32) {
    let mut graph = CUgraph(77);
    assert_eq!(cu!(cuStreamEndCapture(stream, &raw mut graph)), code);
    assert_eq!(graph, CUgraph(0));
}

pub(super) fn nodes(graph: CUgraph) -> Vec<CUgraphNode> {
    let mut count = 0;
    ok!(cuGraphGetNodes(graph, ptr::null_mut(), &raw mut count));
    let mut nodes = vec![CUgraphNode(1); count];
    ok!(cuGraphGetNodes(graph, nodes.as_mut_ptr(), &raw mut count));
    nodes
}

pub(super) fn kinds(graph: CUgraph) -> Vec<u32> {
    nodes(graph)
        .into_iter()
        .map(|node| {
            let mut kind = 99;
            ok!(cuGraphNodeGetType(node, &raw mut kind));
            kind
        })
        .collect()
}

fn a_graph_goes_over_once_and_is_launched_by_one_message() {
    let Scene { stream, other, event, kernel, address } = scene();
    let sent = messages(|| {
        assert_eq!(status(stream), 0);
        ok!(cuStreamBeginCapture_v2(stream, GLOBAL));
        assert_eq!(cu!(cuStreamBeginCapture_v2(stream, GLOBAL)), 401);
        assert_eq!(status(stream), 1);
        assert_eq!(launch(kernel, stream, &mut []), 0);
        ok!(cuEventRecord(event, stream));
        ok!(cuStreamWaitEvent(other, event, 0));
        assert_eq!(status(other), 1, "it joined");
        ok!(cuMemsetD8Async(address, 1, 100, other));
        ok!(cuMemsetD32Async(address + 4096, 1, 100, stream));
        ok!(cuMemcpyDtoDAsync_v2(address + 8192, address, 100, other));
        ok!(cuEventRecord(event, other));
        ok!(cuStreamWaitEvent(stream, event, 0));
        assert_eq!(launch(kernel, stream, &mut []), 0);
    });
    assert_eq!(sent, 0, "a capture sends nothing");
    let graph = end(stream);
    assert_eq!((status(stream), status(other)), (0, 0));
    assert_eq!(kinds(graph), [0, 2, 2, 1, 0]);
    let mut exec = CUgraphExec(0);
    assert_eq!(messages(|| ok!(cuGraphInstantiateWithFlags(&raw mut exec, graph, 0))), 1);
    let sent = messages(|| {
        for _ in 0..100 {
            ok!(cuGraphLaunch(exec, stream));
        }
    });
    assert_eq!(sent, 100);

    // The same again: nothing to update. With one fill changed: one message.
    let capture = |value| {
        ok!(cuStreamBeginCapture_v2(stream, RELAXED));
        assert_eq!(launch(kernel, stream, &mut []), 0);
        ok!(cuEventRecord(event, stream));
        ok!(cuStreamWaitEvent(other, event, 0));
        ok!(cuMemsetD8Async(address, value, 100, other));
        ok!(cuMemsetD32Async(address + 4096, 1, 100, stream));
        ok!(cuMemcpyDtoDAsync_v2(address + 8192, address, 100, other));
        ok!(cuEventRecord(event, other));
        ok!(cuStreamWaitEvent(stream, event, 0));
        assert_eq!(launch(kernel, stream, &mut []), 0);
        end(stream)
    };
    let update = |with| {
        let (mut node, mut result) = (CUgraphNode(0), 9);
        let status = cu!(cuGraphExecUpdate(exec, with, &raw mut node, &raw mut result));
        (status, result)
    };
    let (same, changed) = (capture(1), capture(2));
    assert_eq!(messages(|| assert_eq!(update(same), (0, 0))), 0);
    assert_eq!(messages(|| assert_eq!(update(changed), (0, 0))), 1);
    ok!(cuStreamBeginCapture_v2(stream, RELAXED));
    assert_eq!(launch(kernel, stream, &mut []), 0);
    let short = end(stream);
    assert_eq!(update(short), (910, 2));
    ok!(cuGraphLaunch(exec, stream));
    ok!(cuStreamSynchronize(stream));
    ok!(cuCtxSynchronize());
    ok!(cuGraphExecDestroy(exec));
    assert_eq!(cu!(cuGraphLaunch(exec, stream)), 1);
    for graph in [graph, same, changed, short] {
        ok!(cuGraphDestroy(graph));
        assert_eq!(cu!(cuGraphDestroy(graph)), 1);
    }
}

fn a_long_graph_goes_through_the_window() {
    let Scene { stream, kernel, .. } = scene();
    ok!(cuStreamBeginCapture_v2(stream, THREAD));
    for _ in 0..5000 {
        assert_eq!(launch(kernel, stream, &mut []), 0);
    }
    let graph = end(stream);
    let mut exec = CUgraphExec(0);
    for _ in 0..20 {
        ok!(cuGraphInstantiateWithFlags(&raw mut exec, graph, 0));
        ok!(cuGraphLaunch(exec, stream));
        ok!(cuCtxSynchronize());
        ok!(cuGraphExecDestroy(exec));
    }
    assert_eq!(nodes(graph).len(), 5000);
}

fn what_captures_do_not_allow_has_cudas_codes() {
    let Scene { stream, other, event, kernel, address } = scene();
    let begin = |mode| ok!(cuStreamBeginCapture_v2(stream, mode));
    let blocking = get!(CUstream, cuStreamCreate(0));
    let mut byte = 0_u8;

    assert_eq!(cu!(cuStreamBeginCapture_v2(CUstream(1), GLOBAL)), 900, "the legacy stream");
    assert_eq!(cu!(cuStreamBeginCapture_v2(stream, 3)), 1);
    let mut graph = CUgraph(0);
    assert_eq!(cu!(cuStreamEndCapture(stream, &raw mut graph)), 401);

    begin(GLOBAL);
    assert_eq!(cu!(cuStreamSynchronize(stream)), 900);
    assert_eq!(status(stream), 2);
    assert_eq!(launch(kernel, stream, &mut []), 901);
    assert_eq!(cu!(cuStreamQuery(stream)), 901);
    ends_with(stream, 901);
    assert_eq!(launch(kernel, stream, &mut []), 0, "and the stream is as before");

    begin(RELAXED);
    assert_eq!(cu!(cuStreamQuery(stream)), 900);
    ends_with(stream, 901);

    begin(RELAXED);
    assert_eq!(cu!(cuCtxSynchronize()), 900);
    ends_with(stream, 901);

    // A call that is not safe: refused in every mode but the relaxed one.
    for mode in [GLOBAL, THREAD] {
        begin(mode);
        assert_eq!(fails!(u64, cuMemAlloc_v2(100)), 900);
        ends_with(stream, 901);
    }
    begin(RELAXED);
    ok!(cuMemFree_v2(alloc(100)));
    end(stream);
    begin(GLOBAL);
    let mut mode = RELAXED;
    ok!(cuThreadExchangeStreamCaptureMode(&raw mut mode));
    assert_eq!(mode, GLOBAL);
    ok!(cuMemFree_v2(alloc(100)));
    ok!(cuThreadExchangeStreamCaptureMode(&raw mut mode));
    assert_eq!(mode, RELAXED);
    end(stream);

    // Memory that the host cannot read at the launch.
    begin(RELAXED);
    assert_eq!(cu!(cuMemcpyHtoDAsync_v2(address, (&raw const byte).cast(), 1, stream)), 900);
    ends_with(stream, 901);
    begin(RELAXED);
    assert_eq!(cu!(cuMemcpyDtoHAsync_v2((&raw mut byte).cast(), address, 1, stream)), 900);
    ends_with(stream, 901);
    let host = pinned(8192);
    begin(RELAXED);
    ok!(cuMemcpyHtoDAsync_v2(address, host.cast(), 8192, stream));
    ok!(cuMemcpyDtoHAsync_v2(host.cast(), address, 8192, stream));
    let copies = end(stream);
    assert_eq!(kinds(copies), [1, 1]);
    let mut exec = CUgraphExec(0);
    ok!(cuGraphInstantiateWithFlags(&raw mut exec, copies, 0));
    ok!(cuGraphLaunch(exec, stream));
    ok!(cuStreamSynchronize(stream));

    // Work that was not captured, and work that was.
    ok!(cuEventRecord(event, other));
    begin(GLOBAL);
    assert_eq!(cu!(cuStreamWaitEvent(stream, event, 0)), 905);
    ends_with(stream, 901);
    begin(GLOBAL);
    ok!(cuEventRecord(event, stream));
    assert_eq!(cu!(cuEventQuery(event)), 907);
    ends_with(stream, 901);
    begin(GLOBAL);
    ok!(cuEventRecord(event, stream));
    assert_eq!(cu!(cuEventSynchronize(event)), 907);
    ends_with(stream, 901);

    // Two captures that would become one.
    let (a, b) = (get!(CUevent, cuEventCreate(2)), get!(CUevent, cuEventCreate(2)));
    begin(RELAXED);
    ok!(cuStreamBeginCapture_v2(other, RELAXED));
    assert_eq!(launch(kernel, stream, &mut []), 0);
    assert_eq!(launch(kernel, other, &mut []), 0);
    ok!(cuEventRecord(a, stream));
    ok!(cuEventRecord(b, other));
    assert_eq!(cu!(cuStreamWaitEvent(other, a, 0)), 902);
    ends_with(stream, 901);
    ends_with(other, 901);

    // A stream that joined and never came back; the wrong stream; the wrong thread.
    begin(RELAXED);
    ok!(cuEventRecord(a, stream));
    ok!(cuStreamWaitEvent(other, a, 0));
    assert_eq!(launch(kernel, other, &mut []), 0);
    ends_with(stream, 904);
    assert_eq!(status(other), 0);
    // What the program takes out of a stream's dependencies is not missed; what comes after it is.
    let take_out = |stream| ok!(cuStreamUpdateCaptureDependencies(stream, ptr::null_mut(), 0, 1));
    for (again, code) in [(None, 0), (Some(false), 904), (Some(true), 904)] {
        begin(RELAXED);
        assert_eq!(launch(kernel, stream, &mut []), 0);
        take_out(stream);
        assert_eq!(launch(kernel, stream, &mut []), 0);
        ok!(cuEventRecord(a, stream));
        ok!(cuStreamWaitEvent(other, a, 0));
        assert_eq!(launch(kernel, other, &mut []), 0);
        let mut node = tips(other)[0];
        take_out(other);
        match again {
            None => {}
            Some(false) => assert_eq!(launch(kernel, other, &mut []), 0),
            Some(true) => ok!(cuStreamUpdateCaptureDependencies(other, &raw mut node, 1, 0)),
        }
        if code == 0 { assert_eq!(kinds(end(stream)), [0; 3]) } else { ends_with(stream, code) }
    }
    begin(RELAXED);
    ok!(cuEventRecord(a, stream));
    ok!(cuStreamWaitEvent(other, a, 0));
    ends_with(other, 903);
    ends_with(stream, 901);
    begin(THREAD);
    let context = get!(vgpu_abi::driver::CUcontext, cuCtxGetCurrent());
    std::thread::spawn(move || {
        ok!(cuCtxSetCurrent(context));
        // Another thread's capture in this mode is nobody else's business.
        ok!(cuMemFree_v2(alloc(64)));
        ends_with(stream, 908);
    })
    .join()
    .unwrap();
    ends_with(stream, 901);

    // The legacy stream would wait for a blocking stream that captures.
    ok!(cuStreamBeginCapture_v2(blocking, RELAXED));
    let mut state = 0;
    assert_eq!(cu!(cuStreamIsCapturing(CUstream(0), &raw mut state)), 906);
    assert_eq!(status(blocking), 1);
    assert_eq!(launch(kernel, CUstream(0), &mut []), 906);
    ends_with(blocking, 901);
    begin(RELAXED);
    assert_eq!(launch(kernel, CUstream(0), &mut []), 0, "a stream that does not block is no matter");
    end(stream);

    // A capture ends with its stream.
    let short = get!(CUstream, cuStreamCreate(1));
    ok!(cuStreamBeginCapture_v2(short, GLOBAL));
    ok!(cuStreamDestroy_v2(short));
    ok!(cuMemFree_v2(alloc(64)));
    ok!(cuCtxSynchronize());
}

/// Returns a parameter of 8 bytes of a node.
fn value_at(params: &KernelNodeParams, index: usize) -> u64 {
    // SAFETY: the node has a pointer for each parameter.
    let place = unsafe { params.params.add(index) };
    // SAFETY: as above.
    let value = unsafe { place.read() };
    // SAFETY: the parameter is one of 8 bytes.
    unsafe { value.cast::<u64>().read_unaligned() }
}

fn kernel_nodes_can_be_read_and_changed() {
    let Scene { stream, .. } = scene();
    let module = get!(CUmodule, cuModuleLoadData(PTX.as_ptr().cast()));
    let kernel = function(module, "hundred");
    let mut values: [u64; 13] = std::array::from_fn(|index| 1000 + index as u64);
    let mut params: Vec<*mut c_void> = (0..12).map(|index| (&raw mut values[index]).cast()).collect();
    ok!(cuStreamBeginCapture_v2(stream, RELAXED));
    assert_eq!(launch(kernel, stream, &mut params), 0);
    let graph = end(stream);
    let node = nodes(graph)[0];
    let mut found = std::mem::MaybeUninit::<KernelNodeParams>::uninit();
    ok!(cuGraphKernelNodeGetParams_v2(node, found.as_mut_ptr()));
    // SAFETY: filled in by the call, which succeeded.
    let found = unsafe { found.assume_init() };
    assert_eq!((found.function, found.grid, found.block), (kernel, [1, 1, 1], [32, 1, 1]));
    for index in 0..11 {
        assert_eq!(value_at(&found, index), 1000 + index as u64);
    }
    let mut exec = CUgraphExec(0);
    ok!(cuGraphInstantiateWithFlags(&raw mut exec, graph, 0));
    // One parameter points elsewhere, as older backends do it.
    let mut other = 77_u64;
    // SAFETY: the node's own list of pointers, which may be written until its parameters are set.
    unsafe { found.params.write((&raw mut other).cast()) };
    ok!(cuGraphKernelNodeSetParams_v2(node, &raw const found));
    let mut again = found;
    ok!(cuGraphKernelNodeGetParams_v2(node, &raw mut again));
    assert_eq!(value_at(&again, 0), 77);
    let mut result = 9;
    assert_eq!(messages(|| ok!(cuGraphExecUpdate(exec, graph, ptr::null_mut(), &raw mut result))), 1);
    assert_eq!(result, 0);
    again.grid = [5, 1, 1];
    assert_eq!(messages(|| ok!(cuGraphExecKernelNodeSetParams_v2(exec, node, &raw const again))), 1);
    again.grid = [0, 1, 1];
    assert_eq!(cu!(cuGraphExecKernelNodeSetParams_v2(exec, node, &raw const again)), 1);
    ok!(cuGraphLaunch(exec, stream));
    ok!(cuCtxSynchronize());
}
