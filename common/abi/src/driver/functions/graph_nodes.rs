//! Functions for the nodes of graphs, and for changing an instantiated graph node by node.

use core::ffi::{c_int, c_uint};

use crate::driver::{
    BatchMemoryNodeParams, CUcontext, CUevent, CUfunction, CUgraph, CUgraphExec, CUgraphNode, CUlaunchConfig,
    CUresult, Memcpy3D, MemsetNodeParams,
};

functions! {
    // Graph Management
    cuGraphAddMemcpyNode(
        node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize,
        params: *const Memcpy3D, context: CUcontext
    );
    cuGraphAddChildGraphNode(
        node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, child: CUgraph
    );
    cuGraphAddEventRecordNode(
        node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, event: CUevent
    );
    cuGraphAddEventWaitNode(
        node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, event: CUevent
    );
    cuGraphAddBatchMemOpNode(
        node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize,
        params: *const BatchMemoryNodeParams
    );
    cuGraphAddDependencies(
        graph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, count: usize
    );
    cuGraphAddDependencies_v2(
        graph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, edges: *const [u8; 8], count: usize
    );
    cuGraphGetEdges(graph: CUgraph, from: *mut CUgraphNode, to: *mut CUgraphNode, count: *mut usize);
    cuGraphGetEdges_v2(
        graph: CUgraph, from: *mut CUgraphNode, to: *mut CUgraphNode, edges: *mut [u8; 8], count: *mut usize
    );
    cuGraphDestroyNode(node: CUgraphNode);
    cuGraphChildGraphNodeGetGraph(node: CUgraphNode, graph: *mut CUgraph);
    cuGraphExecMemcpyNodeSetParams(
        graph: CUgraphExec, node: CUgraphNode, params: *const Memcpy3D, context: CUcontext
    );
    cuGraphExecMemsetNodeSetParams(
        graph: CUgraphExec, node: CUgraphNode, params: *const MemsetNodeParams, context: CUcontext
    );
    cuGraphExecChildGraphNodeSetParams(graph: CUgraphExec, node: CUgraphNode, child: CUgraph);
    cuGraphExecEventRecordNodeSetEvent(graph: CUgraphExec, node: CUgraphNode, event: CUevent);
    cuGraphExecEventWaitNodeSetEvent(graph: CUgraphExec, node: CUgraphNode, event: CUevent);
    cuGraphExecBatchMemOpNodeSetParams(
        graph: CUgraphExec, node: CUgraphNode, params: *const BatchMemoryNodeParams
    );
    cuGraphNodeSetEnabled(graph: CUgraphExec, node: CUgraphNode, enabled: c_uint);

    // Occupancy
    cuOccupancyMaxActiveClusters(clusters: *mut c_int, function: CUfunction, config: *const CUlaunchConfig);
}
