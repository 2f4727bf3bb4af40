//! Nodes of graphs that programs add without a capture, and the parameters of kernel nodes.

use std::ffi::c_void;

use vgpu_abi::CUresult;
use vgpu_abi::driver::{
    CUcontext, CUfunction, CUgraph, CUgraphExec, CUgraphNode, CUkernel, KernelNodeParams, MemsetNodeParams,
};
use vgpu_wire::Kind;
use vgpu_wire::body::launch::Launch;
use zerocopy::FromBytes;

use crate::Result;
use crate::arg::{In, Out};
use crate::object::context::Context;
use crate::object::edge::Edge;
use crate::object::gpu::Gpu;
use crate::object::library::find_function;
use crate::object::work::Work;
use crate::object::{current, function, graph, graph_exec};
use crate::submit::fill::{self, FillShape};
use crate::submit::launch::{LaunchShape, Params};

/// Adds a node that depends on other nodes of the same graph.
pub fn add(
    out: Out<CUgraphNode>,
    graph: CUgraph,
    after: In<CUgraphNode>,
    count: usize,
    work: Work,
) -> Result {
    let out = out.check()?;
    let found = graph::get(graph)?;
    let mut places = after
        .slice(count)?
        .iter()
        .map(|&node| graph::node_place(node).filter(|place| place.0 == graph.0).map(|place| place.1))
        .collect::<Option<Vec<u32>>>()
        .ok_or(CUresult::INVALID_VALUE)?;
    places.sort_unstable();
    places.dedup();
    let node = found.add(work, places.into_iter().map(Edge::full).collect());
    out.set(graph::node_handle(graph.0, found, node)?)
}

/// Checks the parameters of a kernel node and returns the node's message.
pub fn kernel(context: &Context, params: &KernelNodeParams) -> Result<Work> {
    let handle =
        if params.function == CUfunction::NULL { CUfunction(params.kernel.0) } else { params.function };
    let function = find_function(handle, context)?;
    let number = function.number()?;
    let KernelNodeParams { grid, block, shared_bytes, .. } = *params;
    let shape = LaunchShape { grid, block, shared_bytes, cluster: [0; 3], flags: 0, priority: 0 };
    shape.check(context.gpu(), function)?;
    // SAFETY: the export's caller promised what the manual says.
    let values = unsafe { Params::from_arguments(params.params, params.extra) }?;
    // SAFETY: the export's caller promised parameters as the kernel has them.
    unsafe {
        values.gather(function.layout(), |bytes| {
            Ok(Work::new(&shape.message(number, 0, bytes.len()), &[bytes]))
        })
    }
}

/// Reads the parameters of a kernel node from version 1 of the structure, which lacks the last two fields.
pub fn version_1(params: In<[u64; 7]>) -> Result<KernelNodeParams> {
    let mut whole = [0_u64; 9];
    whole[..7].copy_from_slice(&params.get()?);
    // SAFETY: any bits are a valid structure: integers, and pointers that are not followed unless set.
    Ok(unsafe { std::mem::transmute::<[u64; 9], KernelNodeParams>(whole) })
}

/// Returns the parameters in version 1 of the structure.
pub fn to_version_1(params: KernelNodeParams) -> [u64; 7] {
    // SAFETY: a structure without padding, of the same size.
    let whole = unsafe { std::mem::transmute::<KernelNodeParams, [u64; 9]>(params) };
    let mut part = [0; 7];
    part.copy_from_slice(&whole[..7]);
    part
}

/// Returns the message of a fill node for the device's own memory.
pub fn memset(gpu: &Gpu, params: MemsetNodeParams) -> Result<Work> {
    let MemsetNodeParams { destination, pitch, value, element, width, height } = params;
    if !matches!(element, 1 | 2 | 4) {
        return Err(CUresult::INVALID_VALUE);
    }
    let shape = FillShape { destination, pitch, width, height };
    let message = fill::message(shape, value, element)?.ok_or(CUresult::INVALID_VALUE)?;
    let bytes = fill::span(&message).ok_or(CUresult::INVALID_VALUE)?;
    if !gpu.memory.has(destination, bytes) {
        return Err(CUresult::INVALID_VALUE);
    }
    Ok(Work::new(&message, &[]))
}

/// Returns the parameters of a kernel node. Their pointers point to the node's own copy.
pub fn get_params(node: CUgraphNode) -> Result<KernelNodeParams> {
    let (graph, index) = graph::find_node(node)?;
    graph.with(index, |node| {
        if node.work.kind() != Some(Kind::Launch) {
            return Err(CUresult::INVALID_VALUE);
        }
        let body = node.work.body_mut();
        let (launch, values) = Launch::mut_from_prefix(body).map_err(|_| CUresult::UNKNOWN)?;
        let function = function::by_number(graph.gpu(), launch.function).ok_or(CUresult::INVALID_HANDLE)?;
        let layout = function::from_handle(function.0).ok_or(CUresult::INVALID_HANDLE)?.layout();
        let values = values.as_mut_ptr();
        let places = layout.params.iter().map(|param| {
            // SAFETY: the message holds all of the layout's bytes behind its body.
            unsafe { values.add(param.offset as usize) }.cast::<c_void>()
        });
        let found = KernelNodeParams {
            function,
            grid: launch.grid,
            block: launch.block,
            shared_bytes: launch.shared_bytes,
            params: std::ptr::null_mut(),
            extra: std::ptr::null_mut(),
            kernel: CUkernel::NULL,
            context: CUcontext::NULL,
        };
        node.pointers = places.collect();
        let params = if node.pointers.is_empty() { std::ptr::null_mut() } else { node.pointers.as_mut_ptr() };
        Ok(KernelNodeParams { params, ..found })
    })
}

/// Replaces the parameters of a kernel node.
pub fn set_params(node: CUgraphNode, params: &KernelNodeParams) -> Result {
    let context = current::context()?;
    let (graph, index) = graph::find_node(node)?;
    let work = kernel(context, params)?;
    graph.with(index, |node| {
        if node.work.kind() != Some(Kind::Launch) {
            return Err(CUresult::INVALID_VALUE);
        }
        // The parameters may be the node's own, which were read above.
        node.pointers.clear();
        node.work = work;
        Ok(())
    })
}

/// Replaces the parameters of a kernel node in an instantiated graph.
pub fn set_exec_params(exec: CUgraphExec, node: CUgraphNode, params: &KernelNodeParams) -> Result {
    let context = current::context()?;
    let (_, index) = graph::find_node(node)?;
    graph_exec::patch(exec, index, &kernel(context, params)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launch_is_found_in_its_work() {
        let shape = LaunchShape {
            grid: [3, 2, 1],
            block: [32, 1, 1],
            shared_bytes: 64,
            cluster: [0; 3],
            flags: 0,
            priority: 0,
        };
        let work = Work::new(&shape.message(9, 0, 12), &[&[1; 12]]);
        let (launch, rest) = Launch::read_from_prefix(work.body()).unwrap();
        assert_eq!((launch.function, launch.grid, launch.param_bytes), (9, [3, 2, 1], 12));
        assert_eq!(&rest[..12], [1; 12]);
    }
}
