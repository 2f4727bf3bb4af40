//! "Graph Management".

use std::ffi::{c_char, c_uint};

use vgpu_abi::CUresult;
use vgpu_abi::driver::arg::{In, Out};
use vgpu_abi::driver::{
    BatchMemoryNodeParams, CUcontext, CUevent, CUgraph, CUgraphExec, CUgraphExecUpdateResultInfo,
    CUgraphNode, CUstream, GraphInstantiateParams, KernelNodeParams, Memcpy3D, MemsetNodeParams,
    graph_update,
};

use super::memory::side;
use super::memory_operations::batch;
use crate::call::Call;
use crate::code::Shape;
use crate::graph::NodeKind;
use crate::memory::Range;
use crate::raw::{Extra, Parameters, operations};
use crate::rule::{Answer, Refusal, Rule};

/// Flags of an instantiation: what the device does itself is not among them.
const INSTANTIATE_FLAGS: u64 = 1 | 2 | 8;

/// Handles of nodes, which are recorded as those that something comes after.
pub fn nodes(call: &mut Call, after: In<CUgraphNode>, count: usize) -> Answer<Vec<usize>> {
    let nodes: Vec<usize> = after.slice(count)?.iter().map(|node| node.0).collect();
    let names: Vec<_> = nodes.iter().map(|&node| crate::machine::Machine::handle(node)).collect();
    call.line.arg("after", names.into());
    Ok(nodes)
}

fn add(
    call: &mut Call,
    node: Out<CUgraphNode>,
    graph: CUgraph,
    after: In<CUgraphNode>,
    count: usize,
    kind: NodeKind,
) -> Answer {
    let node = node.check()?;
    let after = nodes(call, after, count)?;
    let made = CUgraphNode(call.graphs.add_node(graph.0, &after, kind)?);
    call.out("node", &made);
    Ok(node.set(made)?)
}

fn kernel(call: &mut Call, params: &KernelNodeParams) -> Answer<NodeKind> {
    let context = if params.context == CUcontext::NULL { call.context()? } else { params.context.0 };
    call.contexts.get(context)?;
    let shape = Shape { grid: params.grid, block: params.block, shared: params.shared_bytes };
    call.show("function", &params.function);
    call.line.arg("grid", params.grid.to_vec().into());
    call.line.arg("block", params.block.to_vec().into());
    let function = call.modules.get(context, params.function.0)?;
    function.check(shape, Parameters::of(params.params), Extra::of(params.extra))?;
    Ok(NodeKind::Kernel { context, function: params.function.0 })
}

fn copy(call: &mut Call, copy: &Memcpy3D, context: CUcontext) -> Answer<NodeKind> {
    call.contexts.get(context.0)?;
    let size = [copy.width, copy.height, copy.depth];
    let sides = [side(call, &copy.dst, size)?, side(call, &copy.src, size)?];
    call.line.arg("bytes", copy.width.into());
    for (name, side) in ["to", "from"].into_iter().zip(sides) {
        let name_of = call.address(side.range().start);
        call.line.arg(name, name_of);
    }
    call.copy(sides)?;
    Ok(NodeKind::Copy { sides, flat: copy.height <= 1 && copy.depth <= 1, context: context.0 })
}

fn fill(call: &mut Call, fill: &MemsetNodeParams, context: CUcontext) -> Answer<NodeKind> {
    call.contexts.get(context.0)?;
    if !matches!(fill.element, 1 | 2 | 4) || fill.width == 0 || fill.height == 0 {
        return Err(Rule::Argument.into());
    }
    if !fill.destination.is_multiple_of(fill.element.into()) {
        return Err(Rule::FillAlignment.into());
    }
    let row = fill.width * fill.element as usize;
    if fill.height > 1 && fill.pitch < row {
        return Err(Rule::FillPitch.into());
    }
    let range = Range::new(fill.destination, ((fill.height - 1) * fill.pitch + row) as u64);
    let to = call.address(range.start);
    call.line.arg("to", to);
    call.device_range(range, true)?;
    Ok(NodeKind::Fill { range, flat: fill.height == 1, context: context.0 })
}

fn words(call: &mut Call, params: &BatchMemoryNodeParams) -> Answer<NodeKind> {
    call.contexts.get(params.context.0)?;
    if params.flags != 0 {
        return Err(Rule::Argument.into());
    }
    call.line.arg("count", params.count.into());
    Ok(NodeKind::Words(batch(call, operations(params)?)?))
}

fn event(call: &Call, event: CUevent) -> Answer<usize> {
    call.streams.events.get(event.0)?;
    Ok(event.0)
}

fn instantiate(call: &mut Call, out: Out<CUgraphExec>, graph: CUgraph, flags: u64) -> Answer {
    let out = out.check()?;
    if flags & !INSTANTIATE_FLAGS != 0 {
        return Err(Rule::Argument.into());
    }
    call.context_unsafe()?;
    let made = CUgraphExec(call.graphs.instantiate(graph.0)?);
    call.out("exec", &made);
    Ok(out.set(made)?)
}

calls! {
    /// `cuGraphCreate`
    pub fn cuGraphCreate(out: Out<CUgraph>, flags: c_uint) |call| {
        let out = out.check()?;
        if flags != 0 {
            return Err(Rule::Argument.into());
        }
        let made = CUgraph(call.graphs.create());
        call.out("graph", &made);
        Ok(out.set(made)?)
    }

    /// `cuGraphDestroy`
    pub fn cuGraphDestroy(graph: CUgraph) |call| {
        call.captures.not_under_way(graph.0)?;
        call.graphs.destroy(graph.0)
    }

    /// `cuGraphAddKernelNode_v2`
    pub fn cuGraphAddKernelNode_v2(
        node: Out<CUgraphNode>, graph: CUgraph, after: In<CUgraphNode>, count: usize,
        params: In<KernelNodeParams>,
    ) |call| {
        let kind = kernel(call, &params.get()?)?;
        add(call, node, graph, after, count, kind)
    }

    /// `cuGraphAddMemcpyNode`
    pub fn cuGraphAddMemcpyNode(
        node: Out<CUgraphNode>, graph: CUgraph, after: In<CUgraphNode>, count: usize, params: In<Memcpy3D>,
        context: CUcontext,
    ) |call| {
        let kind = copy(call, &params.get()?, context)?;
        add(call, node, graph, after, count, kind)
    }

    /// `cuGraphAddMemsetNode`
    pub fn cuGraphAddMemsetNode(
        node: Out<CUgraphNode>, graph: CUgraph, after: In<CUgraphNode>, count: usize,
        params: In<MemsetNodeParams>,
        context: CUcontext,
    ) |call| {
        let kind = fill(call, &params.get()?, context)?;
        add(call, node, graph, after, count, kind)
    }

    /// `cuGraphAddEmptyNode`
    pub fn cuGraphAddEmptyNode(
        node: Out<CUgraphNode>, graph: CUgraph, after: In<CUgraphNode>, count: usize,
    ) |call| {
        add(call, node, graph, after, count, NodeKind::Empty)
    }

    /// `cuGraphAddChildGraphNode`
    pub fn cuGraphAddChildGraphNode(
        node: Out<CUgraphNode>, graph: CUgraph, after: In<CUgraphNode>, count: usize, child: CUgraph,
    ) |call| {
        let kind = call.graphs.child(child.0)?;
        add(call, node, graph, after, count, kind)
    }

    /// `cuGraphAddEventRecordNode`
    pub fn cuGraphAddEventRecordNode(
        node: Out<CUgraphNode>, graph: CUgraph, after: In<CUgraphNode>, count: usize, recorded: CUevent,
    ) |call| {
        let kind = NodeKind::Record(event(call, recorded)?);
        add(call, node, graph, after, count, kind)
    }

    /// `cuGraphAddEventWaitNode`
    pub fn cuGraphAddEventWaitNode(
        node: Out<CUgraphNode>, graph: CUgraph, after: In<CUgraphNode>, count: usize, awaited: CUevent,
    ) |call| {
        let kind = NodeKind::Wait(event(call, awaited)?);
        add(call, node, graph, after, count, kind)
    }

    /// `cuGraphAddBatchMemOpNode`
    pub fn cuGraphAddBatchMemOpNode(
        node: Out<CUgraphNode>, graph: CUgraph, after: In<CUgraphNode>, count: usize,
        params: In<BatchMemoryNodeParams>,
    ) |call| {
        let kind = words(call, &params.get()?)?;
        add(call, node, graph, after, count, kind)
    }

    /// `cuGraphAddDependencies`
    pub fn cuGraphAddDependencies(
        graph: CUgraph, from: In<CUgraphNode>, to: In<CUgraphNode>, count: usize,
    ) |call| {
        let (from, to) = (nodes(call, from, count)?, nodes(call, to, count)?);
        call.graphs.add_dependencies(graph.0, &from, &to)
    }

    /// `cuGraphDestroyNode`
    pub fn cuGraphDestroyNode(node: CUgraphNode) |call| {
        let graph = call.graphs.graph_of(node.0)?;
        call.captures.not_under_way(graph)?;
        call.graphs.destroy_node(node.0)
    }

    /// `cuGraphNodeGetType`
    pub fn cuGraphNodeGetType(node: CUgraphNode, kind: Out<c_uint>) |call| {
        Ok(kind.set(call.graphs.node(node.0)?.kind.number())?)
    }

    /// `cuGraphGetNodes`
    pub fn cuGraphGetNodes(graph: CUgraph, nodes: Out<CUgraphNode>, count: Out<usize>) |call| {
        let found = call.graphs.nodes_of(graph.0)?;
        if !nodes.is_null() {
            return Err(Refusal::Expected(CUresult::NOT_SUPPORTED));
        }
        Ok(count.set(found.len())?)
    }

    /// `cuGraphInstantiateWithFlags`
    pub fn cuGraphInstantiateWithFlags(out: Out<CUgraphExec>, graph: CUgraph, flags: u64) |call| {
        instantiate(call, out, graph, flags)
    }

    /// `cuGraphInstantiateWithParams`
    pub fn cuGraphInstantiateWithParams(
        out: Out<CUgraphExec>, graph: CUgraph, params: Out<GraphInstantiateParams>,
    ) |call| {
        let flags = 0;
        params.check()?;
        instantiate(call, out, graph, flags)
    }

    /// `cuGraphInstantiate_v2`
    pub fn cuGraphInstantiate_v2(
        out: Out<CUgraphExec>, graph: CUgraph, error_node: Out<CUgraphNode>, log: Out<c_char>, bytes: usize,
    ) |call| {
        instantiate(call, out, graph, 0)
    }

    /// `cuGraphExecDestroy`: launches that are not complete go on.
    pub fn cuGraphExecDestroy(graph: CUgraphExec) |call| { call.graphs.destroy_exec(graph.0) }

    /// `cuGraphExecUpdate_v2`
    pub fn cuGraphExecUpdate_v2(
        handle: CUgraphExec, graph: CUgraph, info: Out<CUgraphExecUpdateResultInfo>,
    ) |call| {
        let done = call.graphs.update(handle.0, graph.0)?;
        let result = if done { graph_update::SUCCESS } else { graph_update::TOPOLOGY_CHANGED };
        let none = CUgraphNode::NULL;
        info.set(CUgraphExecUpdateResultInfo { result, error_node: none, error_from_node: none })?;
        if done { Ok(()) } else { Err(Refusal::Expected(CUresult::GRAPH_EXEC_UPDATE_FAILURE)) }
    }

    /// `cuGraphExecKernelNodeSetParams_v2`
    pub fn cuGraphExecKernelNodeSetParams_v2(
        graph: CUgraphExec, node: CUgraphNode, params: In<KernelNodeParams>,
    ) |call| {
        let kind = kernel(call, &params.get()?)?;
        call.graphs.set_node(graph.0, node.0, kind)
    }

    /// `cuGraphExecMemcpyNodeSetParams`
    pub fn cuGraphExecMemcpyNodeSetParams(
        graph: CUgraphExec, node: CUgraphNode, params: In<Memcpy3D>, context: CUcontext,
    ) |call| {
        let kind = copy(call, &params.get()?, context)?;
        call.graphs.set_node(graph.0, node.0, kind)
    }

    /// `cuGraphExecMemsetNodeSetParams`
    pub fn cuGraphExecMemsetNodeSetParams(
        graph: CUgraphExec, node: CUgraphNode, params: In<MemsetNodeParams>, context: CUcontext,
    ) |call| {
        let kind = fill(call, &params.get()?, context)?;
        call.graphs.set_node(graph.0, node.0, kind)
    }

    /// `cuGraphExecChildGraphNodeSetParams`
    pub fn cuGraphExecChildGraphNodeSetParams(graph: CUgraphExec, node: CUgraphNode, child: CUgraph) |call| {
        let kind = call.graphs.child(child.0)?;
        call.graphs.set_node(graph.0, node.0, kind)
    }

    /// `cuGraphExecEventRecordNodeSetEvent`
    pub fn cuGraphExecEventRecordNodeSetEvent(
        graph: CUgraphExec, node: CUgraphNode, recorded: CUevent,
    ) |call| {
        let kind = NodeKind::Record(event(call, recorded)?);
        call.graphs.set_node(graph.0, node.0, kind)
    }

    /// `cuGraphExecEventWaitNodeSetEvent`
    pub fn cuGraphExecEventWaitNodeSetEvent(graph: CUgraphExec, node: CUgraphNode, awaited: CUevent) |call| {
        let kind = NodeKind::Wait(event(call, awaited)?);
        call.graphs.set_node(graph.0, node.0, kind)
    }

    /// `cuGraphExecBatchMemOpNodeSetParams`
    pub fn cuGraphExecBatchMemOpNodeSetParams(
        graph: CUgraphExec, node: CUgraphNode, params: In<BatchMemoryNodeParams>,
    ) |call| {
        let kind = words(call, &params.get()?)?;
        call.graphs.set_node(graph.0, node.0, kind)
    }

    /// `cuGraphNodeSetEnabled`
    pub fn cuGraphNodeSetEnabled(graph: CUgraphExec, node: CUgraphNode, enabled: c_uint) |call| {
        call.graphs.enable(graph.0, node.0, enabled != 0)
    }

    /// `cuGraphUpload`
    pub fn cuGraphUpload(graph: CUgraphExec, stream: CUstream) |call| {
        let context = call.context()?;
        call.streams.lane(context, stream.0)?;
        call.graphs.launch(graph.0)?;
        Ok(())
    }

    /// `cuGraphLaunch`: behind the stream's work, and behind the graph's own earlier launches. What nodes name
    /// must be there still.
    pub fn cuGraphLaunch(graph: CUgraphExec, stream: CUstream) |call| {
        let context = call.context()?;
        let lane = call.streams.lane(context, stream.0)?;
        call.captures.not_captured(lane)?;
        let launch = call.graphs.launch(graph.0)?;
        for kind in &launch.kinds {
            call.check_operands(kind)?;
        }
        for event in launch.waits {
            call.wait_event(lane, event)?;
        }
        if let Some(before) = launch.before {
            call.work.wait(lane, before);
        }
        let number = call.work.push(lane, launch.effects, launch.uses);
        call.graphs.launched(graph.0, number)?;
        for event in launch.records {
            call.recorded(event, number)?;
        }
        Ok(())
    }
}
