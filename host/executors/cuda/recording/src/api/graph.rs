//! Exports of the manual's chapter "Graph Management" for programs that capture their graphs from streams.

use vgpu_abi::CUresult;
use vgpu_abi::driver::arg::{In, Out};
use vgpu_abi::driver::{
    CUcontext, CUgraph, CUgraphExec, CUgraphExecUpdateResultInfo, CUgraphNode, CUstream, KernelNodeParams,
    graph_update,
};

use crate::call::ApiCall;
use crate::code::LaunchShape;
use crate::graph::{Edge, EdgeData, FULL, NodeKind};
use crate::raw::{Extra, Parameters};
use crate::rule::{CallRefusal, CallResult, Rule};

/// Valid flags of an instantiation. The flag for launches by the device itself is missing.
const INSTANTIATE_FLAGS: u64 = 1 | 2 | 8;

/// Reads handles of nodes with the data of the edges to them, and records them as dependencies. Without data
/// the edges are full.
pub fn edges(
    call: &mut ApiCall,
    after: In<CUgraphNode>,
    data: In<EdgeData>,
    count: usize,
) -> CallResult<Vec<Edge>> {
    let data = if data.is_null() { &[] } else { data.slice(count)? };
    let data = data.iter().copied().chain(std::iter::repeat(FULL));
    let edges: Vec<Edge> = after.slice(count)?.iter().map(|node| node.0).zip(data).collect();
    let names: Vec<_> =
        edges.iter().map(|&(node, _)| crate::machine::RecordingMachine::handle(node)).collect();
    call.line.arg("after", names.into());
    if edges.iter().any(|&(_, data)| data != FULL) {
        let data: Vec<_> = edges.iter().map(|(_, data)| data.to_vec()).collect();
        call.line.arg("edges", data.into());
    }
    Ok(edges)
}

calls! {
    /// Implements `cuGraphDestroy`.
    pub fn cuGraphDestroy(graph: CUgraph) |call| {
        call.captures.not_under_way(graph.0)?;
        call.graphs.destroy(graph.0)
    }

    /// Implements `cuGraphAddEmptyNode`.
    pub fn cuGraphAddEmptyNode(
        node: Out<CUgraphNode>, graph: CUgraph, after: In<CUgraphNode>, count: usize,
    ) |call| {
        let node = node.check()?;
        let after = edges(call, after, In::nowhere(), count)?;
        let made = CUgraphNode(call.graphs.add_node(graph.0, &after, NodeKind::Empty)?);
        call.out("node", &made);
        Ok(node.set(made)?)
    }

    /// Implements `cuGraphInstantiateWithFlags`.
    pub fn cuGraphInstantiateWithFlags(out: Out<CUgraphExec>, graph: CUgraph, flags: u64) |call| {
        let out = out.check()?;
        if flags & !INSTANTIATE_FLAGS != 0 {
            return Err(Rule::Argument.into());
        }
        call.context()?;
        let made = CUgraphExec(call.graphs.instantiate(graph.0)?);
        call.out("exec", &made);
        Ok(out.set(made)?)
    }

    /// Implements `cuGraphExecDestroy`. It does not cancel incomplete launches.
    pub fn cuGraphExecDestroy(graph: CUgraphExec) |call| { call.graphs.destroy_exec(graph.0) }

    /// Implements `cuGraphExecUpdate_v2`.
    pub fn cuGraphExecUpdate_v2(
        handle: CUgraphExec, graph: CUgraph, info: Out<CUgraphExecUpdateResultInfo>,
    ) |call| {
        let done = call.graphs.update(handle.0, graph.0)?;
        let result = if done { graph_update::SUCCESS } else { graph_update::TOPOLOGY_CHANGED };
        let none = CUgraphNode::NULL;
        info.set(CUgraphExecUpdateResultInfo { result, error_node: none, error_from_node: none })?;
        if done { Ok(()) } else { Err(CallRefusal::Expected(CUresult::GRAPH_EXEC_UPDATE_FAILURE)) }
    }

    /// Implements `cuGraphExecKernelNodeSetParams_v2`.
    pub fn cuGraphExecKernelNodeSetParams_v2(
        graph: CUgraphExec, node: CUgraphNode, params: In<KernelNodeParams>,
    ) |call| {
        let params = params.get()?;
        let context = if params.context == CUcontext::NULL { call.context()? } else { params.context.0 };
        call.contexts.get(context)?;
        let shape = LaunchShape { grid: params.grid, block: params.block, shared: params.shared_bytes };
        call.show("function", &params.function);
        call.line.arg("grid", params.grid.to_vec().into());
        call.line.arg("block", params.block.to_vec().into());
        let function = call.modules.get(context, params.function.0)?;
        function.check(shape, Parameters::from_field(params.params), Extra::from_field(params.extra))?;
        let kind = NodeKind::Kernel { context, function: params.function.0, early: false };
        call.graphs.set_node(graph.0, node.0, kind)
    }

    /// Implements `cuGraphLaunch`. The launch is ordered after the stream's work and after earlier launches
    /// of the graph. The operands of the nodes must still exist.
    pub fn cuGraphLaunch(graph: CUgraphExec, stream: CUstream) |call| {
        let context = call.context()?;
        let lane = call.streams.lane(context, stream.0)?;
        call.captures.not_captured(lane)?;
        let (before, kinds) = call.graphs.contents_of_launch(graph.0)?;
        let (mut effects, mut uses) = (Vec::new(), Vec::new());
        for kind in &kinds {
            call.check_operands(kind)?;
            kind.effects(&mut effects, &mut uses);
        }
        if let Some(before) = before {
            call.work.wait(lane, before);
        }
        let number = call.work.push(lane, effects, uses);
        call.graphs.set_newest(graph.0, number)
    }
}
