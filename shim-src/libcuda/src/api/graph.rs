//! Graph management: creates, changes, instantiates and launches graphs.

use std::ffi::{c_char, c_uint};

use vgpu_abi::CUresult;
use vgpu_abi::driver::{
    CUcontext, CUgraph, CUgraphExec, CUgraphExecUpdateResultInfo, CUgraphNode, CUstream,
    GraphInstantiateParams, KernelNodeParams, MemsetNodeParams, graph_update,
};
use vgpu_wire::body::stream::Join;

use crate::Result;
use crate::arg::{In, InOut, Out};
use crate::object::default_stream::find;
use crate::object::edge::{Edge, EdgeData};
use crate::object::graph::{create, discard, find_node, get, list, node_handle, node_place, select};
use crate::object::work::Work;
use crate::object::{current, graph_exec};
use crate::submit::graph_node::{
    add, get_params, kernel, memset, set_exec_params, set_params, to_version_1, version_1,
};

exports! {
    /// Creates an empty graph for the current context's device.
    pub fn cuGraphCreate(out: Out<CUgraph>, flags: c_uint) -> CUresult {
        let context = current::context()?;
        let out = out.check()?;
        if flags != 0 {
            return Err(CUresult::INVALID_VALUE);
        }
        out.set(CUgraph(create(context.gpu())?.0))
    }

    /// Destroys a graph. Graphs that were instantiated from it remain.
    pub fn cuGraphDestroy(graph: CUgraph) -> CUresult {
        get(graph)?;
        if discard(graph.0) { Ok(()) } else { Err(CUresult::INVALID_VALUE) }
    }

    /// Creates a copy of a graph.
    pub fn cuGraphClone(out: Out<CUgraph>, original: CUgraph) -> CUresult {
        let original = get(original)?;
        let out = out.check()?;
        let (handle, clone) = create(original.gpu())?;
        for node in original.nodes().iter() {
            clone.add(node.work.clone(), node.after.clone());
        }
        out.set(CUgraph(handle))
    }

    /// Stores the handles of a graph's nodes, or only their number if `nodes` is null.
    pub fn cuGraphGetNodes(graph: CUgraph, nodes: Out<CUgraphNode>, count: InOut<usize>) -> CUresult {
        list(nodes, count, &select(graph, |_| true)?)
    }

    /// Stores the handles of the nodes without dependencies, or only their number if `nodes` is null.
    pub fn cuGraphGetRootNodes(graph: CUgraph, nodes: Out<CUgraphNode>, count: InOut<usize>) -> CUresult {
        list(nodes, count, &select(graph, |node| node.after.is_empty())?)
    }

    /// Stores the `CUgraphNodeType` of a node.
    pub fn cuGraphNodeGetType(node: CUgraphNode, kind: Out<c_uint>) -> CUresult {
        let (graph, index) = find_node(node)?;
        kind.set(graph.with(index, |node| Ok(node.work.node_type()))?)
    }

    /// Stores the handles of the nodes that a node depends on, or only their number if `nodes` is null. Fails
    /// with lossy-query if an edge is programmatic, because the list does not show that.
    pub fn cuGraphNodeGetDependencies(
        node: CUgraphNode, nodes: Out<CUgraphNode>, count: InOut<usize>,
    ) -> CUresult {
        let (found, edges) = dependencies(node)?;
        if edges.iter().any(|edge| edge.programmatic) {
            return Err(CUresult::LOSSY_QUERY);
        }
        list(nodes, count, &found)
    }

    /// Stores the handles of the nodes that a node depends on, and the data of the edges to them.
    pub fn cuGraphNodeGetDependencies_v2(
        node: CUgraphNode, nodes: Out<CUgraphNode>, data: Out<EdgeData>, count: InOut<usize>,
    ) -> CUresult {
        let (found, edges) = dependencies(node)?;
        if data.is_null() {
            if edges.iter().any(|edge| edge.programmatic) {
                return Err(CUresult::LOSSY_QUERY);
            }
        } else if nodes.is_null() {
            return Err(CUresult::INVALID_VALUE);
        } else {
            for (index, edge) in edges.iter().enumerate().take(count.get()?) {
                // SAFETY: the caller of the export promised room for so many edges.
                let place = unsafe { data.at(index) };
                place.set(edge.data())?;
            }
        }
        list(nodes, count, &found)
    }
}

/// Returns the handles of the nodes that a node depends on, and the edges to them.
fn dependencies(node: CUgraphNode) -> Result<(Vec<CUgraphNode>, Vec<Edge>)> {
    let (graph, index) = find_node(node)?;
    let edges = graph.with(index, |node| Ok(node.after.clone()))?;
    let (handle, _) = node_place(node).ok_or(CUresult::INVALID_VALUE)?;
    let nodes = edges.iter().map(|edge| node_handle(handle, graph, edge.node)).collect::<Result<_>>()?;
    Ok((nodes, edges))
}

exports! {
    /// Adds a node that launches a kernel.
    pub fn cuGraphAddKernelNode_v2(
        node: Out<CUgraphNode>, graph: CUgraph, after: In<CUgraphNode>, count: usize,
        params: In<KernelNodeParams>,
    ) -> CUresult {
        let context = current::context()?;
        add(node, graph, after, count, kernel(context, &params.get()?)?)
    }

    /// Adds a node that launches a kernel, with the shorter structure of parameters.
    pub fn cuGraphAddKernelNode(
        node: Out<CUgraphNode>, graph: CUgraph, after: In<CUgraphNode>, count: usize, params: In<[u64; 7]>,
    ) -> CUresult {
        let context = current::context()?;
        add(node, graph, after, count, kernel(context, &version_1(params)?)?)
    }

    /// Adds a node that fills memory.
    pub fn cuGraphAddMemsetNode(
        node: Out<CUgraphNode>, graph: CUgraph, after: In<CUgraphNode>, count: usize,
        params: In<MemsetNodeParams>,
        context: CUcontext,
    ) -> CUresult {
        let gpu = current::or_given(context)?.gpu();
        add(node, graph, after, count, memset(gpu, params.get()?)?)
    }

    /// Adds a node that does nothing but order other nodes. It is a join, which has no effect in a graph.
    pub fn cuGraphAddEmptyNode(
        node: Out<CUgraphNode>, graph: CUgraph, after: In<CUgraphNode>, count: usize,
    ) -> CUresult {
        add(node, graph, after, count, Work::new(&Join { stream: 0, reserved: 0 }, &[]))
    }

    /// Stores the parameters of a kernel node. Their pointers point to the node's own copy.
    pub fn cuGraphKernelNodeGetParams_v2(node: CUgraphNode, params: Out<KernelNodeParams>) -> CUresult {
        let out = params.check()?;
        out.set(get_params(node)?)
    }

    /// Stores the parameters of a kernel node, in the shorter structure.
    pub fn cuGraphKernelNodeGetParams(node: CUgraphNode, params: Out<[u64; 7]>) -> CUresult {
        let out = params.check()?;
        out.set(to_version_1(get_params(node)?))
    }

    /// Replaces the parameters of a kernel node.
    pub fn cuGraphKernelNodeSetParams_v2(node: CUgraphNode, params: In<KernelNodeParams>) -> CUresult {
        set_params(node, &params.get()?)
    }

    /// Replaces the parameters of a kernel node, with the shorter structure.
    pub fn cuGraphKernelNodeSetParams(node: CUgraphNode, params: In<[u64; 7]>) -> CUresult {
        set_params(node, &version_1(params)?)
    }

    /// Replaces the parameters of a kernel node in an instantiated graph.
    pub fn cuGraphExecKernelNodeSetParams_v2(
        graph: CUgraphExec, node: CUgraphNode, params: In<KernelNodeParams>,
    ) -> CUresult {
        set_exec_params(graph, node, &params.get()?)
    }

    /// Replaces the parameters of a kernel node in an instantiated graph, with the shorter structure.
    pub fn cuGraphExecKernelNodeSetParams(
        graph: CUgraphExec, node: CUgraphNode, params: In<[u64; 7]>,
    ) -> CUresult {
        set_exec_params(graph, node, &version_1(params)?)
    }
}

/// Instantiates a graph for the functions with a buffer for an error log. Stores an empty text in the buffer,
/// and null as the node at fault.
fn instantiate_with_log(
    out: Out<CUgraphExec>,
    graph: CUgraph,
    error_node: Out<CUgraphNode>,
    log: Out<c_char>,
    bytes: usize,
) -> Result {
    error_node.set_if(CUgraphNode::NULL);
    if !log.is_null() && bytes > 0 {
        log.set_text(b"", bytes)?;
    }
    graph_exec::instantiate(graph, 0, out)
}

exports! {
    /// Instantiates a graph. The error log stays empty and the node at fault null, even after a failure.
    pub fn cuGraphInstantiate(
        out: Out<CUgraphExec>, graph: CUgraph, error_node: Out<CUgraphNode>, log: Out<c_char>, bytes: usize,
    ) -> CUresult {
        instantiate_with_log(out, graph, error_node, log, bytes)
    }

    /// Instantiates a graph. The error log stays empty and the node at fault null, even after a failure.
    pub fn cuGraphInstantiate_v2(
        out: Out<CUgraphExec>, graph: CUgraph, error_node: Out<CUgraphNode>, log: Out<c_char>, bytes: usize,
    ) -> CUresult {
        instantiate_with_log(out, graph, error_node, log, bytes)
    }

    /// Instantiates a graph with flags.
    pub fn cuGraphInstantiateWithFlags(out: Out<CUgraphExec>, graph: CUgraph, flags: u64) -> CUresult {
        graph_exec::instantiate(graph, flags, out)
    }

    /// Stores the flags with which a graph was instantiated.
    pub fn cuGraphExecGetFlags(graph: CUgraphExec, flags: Out<u64>) -> CUresult {
        flags.set(graph_exec::get(graph)?.flags())
    }

    /// Updates an instantiated graph from a graph of the same shape. Stores the `CUgraphExecUpdateResult`,
    /// and the node that prevents the update or null.
    pub fn cuGraphExecUpdate(
        handle: CUgraphExec, graph: CUgraph, node: Out<CUgraphNode>, result: Out<c_uint>,
    ) -> CUresult {
        let (code, at) = graph_exec::update(handle, graph)?;
        node.set_if(at);
        result.set_if(code);
        if code == graph_update::SUCCESS { Ok(()) } else { Err(CUresult::GRAPH_EXEC_UPDATE_FAILURE) }
    }

    /// Updates an instantiated graph from a graph of the same shape. Stores the `CUgraphExecUpdateResult`,
    /// and the node that prevents the update or null. The node at the start of an edge is always null.
    pub fn cuGraphExecUpdate_v2(
        handle: CUgraphExec, graph: CUgraph, info: Out<CUgraphExecUpdateResultInfo>,
    ) -> CUresult {
        let (result, error_node) = graph_exec::update(handle, graph)?;
        info.set_if(CUgraphExecUpdateResultInfo { result, error_node, error_from_node: CUgraphNode::NULL });
        if result == graph_update::SUCCESS { Ok(()) } else { Err(CUresult::GRAPH_EXEC_UPDATE_FAILURE) }
    }

    /// Destroys an instantiated graph. Its launches complete nevertheless.
    pub fn cuGraphExecDestroy(graph: CUgraphExec) -> CUresult { graph_exec::destroy(graph) }
}

export_ptsz! {
    /// Instantiates a graph with the flags in `params`, and stores there whether it failed. Every
    /// instantiation uploads the graph, so the stream in `params` is not used.
    pub fn cuGraphInstantiateWithParams, fn cuGraphInstantiateWithParams_ptsz(
        out: Out<CUgraphExec>, graph: CUgraph, params: InOut<GraphInstantiateParams>
    ) |_default| {
        let mut params_now = params.get()?;
        let done = graph_exec::instantiate(graph, params_now.flags, out);
        params_now.error_node = CUgraphNode::NULL;
        params_now.result = c_uint::from(done.is_err());
        params.set(params_now)?;
        done
    }

    /// Succeeds without effect, because a graph is uploaded when it is instantiated.
    pub fn cuGraphUpload, fn cuGraphUpload_ptsz(graph: CUgraphExec, stream: CUstream) |default| {
        graph_exec::get(graph)?;
        find(stream, default).map(drop)
    }

    /// Launches an instantiated graph in the order of a stream. A launch is one message.
    pub fn cuGraphLaunch, fn cuGraphLaunch_ptsz(graph: CUgraphExec, stream: CUstream) |default| {
        let exec = graph_exec::get(graph)?;
        graph_exec::launch(exec, find(stream, default)?)
    }
}
