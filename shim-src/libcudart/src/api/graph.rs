//! Graph management: instantiation, update and launch, and as much of building and reading graphs as programs
//! of GGML have used. The driver records and stores graphs; nodes and results are the driver's own.

use core::ffi::c_uint;
use core::ptr;

use vgpu_abi::driver::{
    self, CUcontext, CUfunction, CUgraphExecUpdateResultInfo, CUkernel, GraphInstantiateParams,
    MemsetNodeParams,
};
use vgpu_abi::runtime::{
    CudaError, Dim3, Graph, GraphExec, GraphNode, KernelNodeParams, MemsetParams, Stream,
};

use crate::address::address;
use crate::{kernels, process};

fn instantiate(place: *mut GraphExec, graph: Graph, flags: u64) -> Result<(), CudaError> {
    process::enter()?;
    if place.is_null() {
        return Err(CudaError::INVALID_VALUE);
    }
    cu!(cuGraphInstantiateWithFlags(place, graph, flags))
}

/// Translates a kernel node's parameters into the driver's.
fn to_driver(params: &KernelNodeParams) -> Result<driver::KernelNodeParams, CudaError> {
    let (grid, block) = (params.gridDim, params.blockDim);
    Ok(driver::KernelNodeParams {
        function: CUfunction::NULL,
        grid: [grid.x, grid.y, grid.z],
        block: [block.x, block.y, block.z],
        shared_bytes: params.sharedMemBytes,
        params: params.kernelParams,
        extra: params.extra,
        kernel: kernels::from_host(params.func)?,
        context: CUcontext::NULL,
    })
}

/// Translates the driver's parameters of a kernel node. The function is a host stub if the kernel is
/// registered, otherwise the driver's handle, which programs may use in its place.
fn from_driver(params: &driver::KernelNodeParams) -> KernelNodeParams {
    let handle = if params.kernel == CUkernel::NULL { params.function.0 } else { params.kernel.0 };
    let [grid, block] = [params.grid, params.block].map(|[x, y, z]| Dim3 { x, y, z });
    KernelNodeParams {
        func: ptr::without_provenance_mut(kernels::host_of(params.kernel, params.function).unwrap_or(handle)),
        gridDim: grid,
        blockDim: block,
        sharedMemBytes: params.shared_bytes,
        kernelParams: params.params,
        extra: params.extra,
    }
}

calls! {
    /// Creates an empty graph.
    pub fn cudaGraphCreate(place: *mut Graph, flags: c_uint) {
        process::enter()?;
        if place.is_null() {
            return Err(CudaError::INVALID_VALUE);
        }
        cu!(cuGraphCreate(place, flags))
    }

    /// Destroys a graph.
    pub fn cudaGraphDestroy(graph: Graph) {
        process::enter()?;
        cu!(cuGraphDestroy(graph))
    }

    /// Creates a copy of a graph.
    pub fn cudaGraphClone(place: *mut Graph, original: Graph) {
        process::enter()?;
        cu!(cuGraphClone(place, original))
    }

    /// Instantiates a graph with flags, as CUDA 12 defines this name.
    pub fn cudaGraphInstantiate(place: *mut GraphExec, graph: Graph, flags: u64) {
        instantiate(place, graph, flags)
    }

    /// Instantiates a graph with flags.
    pub fn cudaGraphInstantiateWithFlags(place: *mut GraphExec, graph: Graph, flags: u64) {
        instantiate(place, graph, flags)
    }

    /// Instantiates a graph with the flags in `params`, and stores there whether it failed.
    pub fn cudaGraphInstantiateWithParams(
        place: *mut GraphExec, graph: Graph, params: *mut GraphInstantiateParams
    ) {
        process::enter()?;
        if place.is_null() || params.is_null() {
            return Err(CudaError::INVALID_VALUE);
        }
        cu!(cuGraphInstantiateWithParams(place, graph, params))
    }

    /// Updates an instantiated graph from a graph of the same shape. Stores the `cudaGraphExecUpdateResult`
    /// and the node that prevents the update.
    pub fn cudaGraphExecUpdate(exec: GraphExec, graph: Graph, info: *mut CUgraphExecUpdateResultInfo) {
        process::enter()?;
        if info.is_null() {
            return Err(CudaError::INVALID_VALUE);
        }
        cu!(cuGraphExecUpdate_v2(exec, graph, info))
    }

    /// Destroys an instantiated graph.
    pub fn cudaGraphExecDestroy(exec: GraphExec) {
        process::enter()?;
        cu!(cuGraphExecDestroy(exec))
    }

    /// Stores the flags with which a graph was instantiated.
    pub fn cudaGraphExecGetFlags(exec: GraphExec, flags: *mut u64) {
        process::enter()?;
        if flags.is_null() {
            return Err(CudaError::INVALID_VALUE);
        }
        cu!(cuGraphExecGetFlags(exec, flags))
    }

    /// Launches an instantiated graph in the order of a stream.
    pub fn cudaGraphLaunch | fn cudaGraphLaunch_ptsz [stream] (exec: GraphExec, stream: Stream) {
        process::enter()?;
        cu!(cuGraphLaunch(exec, stream))
    }

    /// Succeeds without effect, because the driver uploads a graph when it is instantiated.
    pub fn cudaGraphUpload | fn cudaGraphUpload_ptsz [stream] (exec: GraphExec, stream: Stream) {
        process::enter()?;
        cu!(cuGraphUpload(exec, stream))
    }

    /// Stores the handles of a graph's nodes, or only their number.
    pub fn cudaGraphGetNodes(graph: Graph, nodes: *mut GraphNode, count: *mut usize) {
        process::enter()?;
        if count.is_null() {
            return Err(CudaError::INVALID_VALUE);
        }
        cu!(cuGraphGetNodes(graph, nodes, count))
    }

    /// Stores the handles of the nodes without dependencies, or only their number.
    pub fn cudaGraphGetRootNodes(graph: Graph, nodes: *mut GraphNode, count: *mut usize) {
        process::enter()?;
        if count.is_null() {
            return Err(CudaError::INVALID_VALUE);
        }
        cu!(cuGraphGetRootNodes(graph, nodes, count))
    }

    /// Stores the type of a node.
    pub fn cudaGraphNodeGetType(node: GraphNode, kind: *mut c_uint) {
        process::enter()?;
        if kind.is_null() {
            return Err(CudaError::INVALID_VALUE);
        }
        cu!(cuGraphNodeGetType(node, kind))
    }

    /// Adds a node that does nothing but order other nodes.
    pub fn cudaGraphAddEmptyNode(
        node: *mut GraphNode,
        graph: Graph,
        dependencies: *const GraphNode,
        count: usize,
    ) {
        process::enter()?;
        if node.is_null() {
            return Err(CudaError::INVALID_VALUE);
        }
        cu!(cuGraphAddEmptyNode(node, graph, dependencies, count))
    }

    /// Adds a node that launches a kernel.
    pub fn cudaGraphAddKernelNode(
        node: *mut GraphNode,
        graph: Graph,
        dependencies: *const GraphNode,
        count: usize,
        params: *const KernelNodeParams,
    ) {
        process::enter()?;
        let params = to_driver(&load!(params)?)?;
        if node.is_null() {
            return Err(CudaError::INVALID_VALUE);
        }
        cu!(cuGraphAddKernelNode_v2(node, graph, dependencies, count, &raw const params))
    }

    /// Adds a node that fills memory.
    pub fn cudaGraphAddMemsetNode(
        node: *mut GraphNode,
        graph: Graph,
        dependencies: *const GraphNode,
        count: usize,
        params: *const MemsetParams,
    ) {
        let runtime = process::enter()?;
        let params = load!(params)?;
        if node.is_null() {
            return Err(CudaError::INVALID_VALUE);
        }
        let context = runtime.device(runtime.current()?)?.primary()?;
        let params = MemsetNodeParams {
            destination: address(params.dst),
            pitch: params.pitch,
            value: params.value,
            element: params.elementSize,
            width: params.width,
            height: params.height,
        };
        cu!(cuGraphAddMemsetNode(node, graph, dependencies, count, &raw const params, context))
    }

    /// Stores the parameters of a kernel node.
    pub fn cudaGraphKernelNodeGetParams(node: GraphNode, place: *mut KernelNodeParams) {
        process::enter()?;
        let mut params = driver::KernelNodeParams {
            function: CUfunction::NULL,
            grid: [0; 3],
            block: [0; 3],
            shared_bytes: 0,
            params: ptr::null_mut(),
            extra: ptr::null_mut(),
            kernel: CUkernel::NULL,
            context: CUcontext::NULL,
        };
        cu!(cuGraphKernelNodeGetParams_v2(node, &raw mut params))?;
        store!(place, from_driver(&params))
    }

    /// Replaces the parameters of a kernel node.
    pub fn cudaGraphKernelNodeSetParams(node: GraphNode, params: *const KernelNodeParams) {
        process::enter()?;
        let params = to_driver(&load!(params)?)?;
        cu!(cuGraphKernelNodeSetParams_v2(node, &raw const params))
    }

    /// Replaces the parameters of a kernel node in an instantiated graph.
    pub fn cudaGraphExecKernelNodeSetParams(
        exec: GraphExec, node: GraphNode, params: *const KernelNodeParams
    ) {
        process::enter()?;
        let params = to_driver(&load!(params)?)?;
        cu!(cuGraphExecKernelNodeSetParams_v2(exec, node, &raw const params))
    }
}
