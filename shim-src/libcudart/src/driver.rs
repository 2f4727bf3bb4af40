//! The driver API as far as it is called from here. The dynamic loader finds these names in
//! `libcuda.so.1`.

#![allow(non_snake_case, reason = "the names are CUDA's")]

use core::ffi::{c_char, c_int, c_uint, c_void};

use vgpu_abi::CUresult;
use vgpu_abi::driver::{
    CUcontext, CUdevice, CUdeviceptr, CUevent, CUfunction, CUgraph, CUgraphExec, CUgraphExecUpdateResultInfo,
    CUgraphNode, CUkernel, CUlaunchConfig, CUlibrary, CUmemAccessDesc, CUmemLocation, CUmemPoolProps,
    CUmemoryPool, CUstream, CUuuid, GraphInstantiateParams, KernelNodeParams, Memcpy2D, Memcpy3D,
    MemsetNodeParams,
};

/// `CUhostFn`, `cudaHostFn_t`
pub type HostFunction = unsafe extern "C" fn(*mut c_void);
/// `CUstreamCallback`, and `cudaStreamCallback_t`, whose codes are the same numbers.
pub type StreamCallback = unsafe extern "C" fn(CUstream, CUresult, *mut c_void);

unsafe extern "C" {
    pub fn cuInit(flags: c_uint) -> CUresult;
    pub fn cuDriverGetVersion(version: *mut c_int) -> CUresult;
    pub fn cuGetExportTable(table: *mut *const c_void, uuid: *const CUuuid) -> CUresult;
    pub fn cuGetProcAddress_v2(
        name: *const c_char,
        function: *mut *mut c_void,
        version: c_int,
        flags: u64,
        status: *mut c_uint,
    ) -> CUresult;

    pub fn cuDeviceGetCount(count: *mut c_int) -> CUresult;
    pub fn cuDeviceGet(device: *mut CUdevice, ordinal: c_int) -> CUresult;
    pub fn cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: CUdevice) -> CUresult;
    pub fn cuDeviceGetName(name: *mut c_char, bytes: c_int, device: CUdevice) -> CUresult;
    pub fn cuDeviceGetUuid_v2(uuid: *mut CUuuid, device: CUdevice) -> CUresult;
    pub fn cuDeviceTotalMem_v2(bytes: *mut usize, device: CUdevice) -> CUresult;
    pub fn cuDeviceGetPCIBusId(text: *mut c_char, bytes: c_int, device: CUdevice) -> CUresult;
    pub fn cuDeviceGetByPCIBusId(device: *mut CUdevice, text: *const c_char) -> CUresult;
    pub fn cuDeviceCanAccessPeer(answer: *mut c_int, device: CUdevice, peer: CUdevice) -> CUresult;
    pub fn cuDeviceGetP2PAttribute(
        value: *mut c_int,
        attribute: c_uint,
        source: CUdevice,
        destination: CUdevice,
    ) -> CUresult;
    pub fn cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice) -> CUresult;
    pub fn cuDevicePrimaryCtxReset_v2(device: CUdevice) -> CUresult;
    pub fn cuDevicePrimaryCtxSetFlags_v2(device: CUdevice, flags: c_uint) -> CUresult;
    pub fn cuDevicePrimaryCtxGetState(device: CUdevice, flags: *mut c_uint, active: *mut c_int) -> CUresult;

    pub fn cuCtxGetCurrent(context: *mut CUcontext) -> CUresult;
    pub fn cuCtxSetCurrent(context: CUcontext) -> CUresult;
    pub fn cuCtxGetDevice(device: *mut CUdevice) -> CUresult;
    pub fn cuCtxSynchronize() -> CUresult;
    pub fn cuCtxGetLimit(value: *mut usize, limit: c_uint) -> CUresult;
    pub fn cuCtxSetLimit(limit: c_uint, value: usize) -> CUresult;
    pub fn cuCtxGetCacheConfig(config: *mut c_uint) -> CUresult;
    pub fn cuCtxSetCacheConfig(config: c_uint) -> CUresult;
    pub fn cuCtxGetSharedMemConfig(config: *mut c_uint) -> CUresult;
    pub fn cuCtxSetSharedMemConfig(config: c_uint) -> CUresult;
    pub fn cuCtxGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) -> CUresult;
    pub fn cuCtxEnablePeerAccess(peer: CUcontext, flags: c_uint) -> CUresult;
    pub fn cuCtxDisablePeerAccess(peer: CUcontext) -> CUresult;

    pub fn cuMemAlloc_v2(address: *mut CUdeviceptr, bytes: usize) -> CUresult;
    pub fn cuMemAllocPitch_v2(
        address: *mut CUdeviceptr,
        pitch: *mut usize,
        width: usize,
        height: usize,
        element: c_uint,
    ) -> CUresult;
    pub fn cuMemAllocManaged(address: *mut CUdeviceptr, bytes: usize, flags: c_uint) -> CUresult;
    pub fn cuMemFree_v2(address: CUdeviceptr) -> CUresult;
    pub fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> CUresult;
    pub fn cuMemAllocAsync(address: *mut CUdeviceptr, bytes: usize, stream: CUstream) -> CUresult;
    pub fn cuMemFreeAsync(address: CUdeviceptr, stream: CUstream) -> CUresult;
    pub fn cuMemAllocFromPoolAsync(
        address: *mut CUdeviceptr,
        bytes: usize,
        pool: CUmemoryPool,
        stream: CUstream,
    ) -> CUresult;
    pub fn cuMemPoolCreate(pool: *mut CUmemoryPool, props: *const CUmemPoolProps) -> CUresult;
    pub fn cuMemPoolDestroy(pool: CUmemoryPool) -> CUresult;
    pub fn cuMemPoolTrimTo(pool: CUmemoryPool, least: usize) -> CUresult;
    pub fn cuMemPoolSetAttribute(pool: CUmemoryPool, attribute: c_uint, value: *mut c_void) -> CUresult;
    pub fn cuMemPoolGetAttribute(pool: CUmemoryPool, attribute: c_uint, value: *mut c_void) -> CUresult;
    pub fn cuMemPoolSetAccess(pool: CUmemoryPool, rights: *const CUmemAccessDesc, count: usize) -> CUresult;
    pub fn cuMemPoolGetAccess(
        flags: *mut c_uint,
        pool: CUmemoryPool,
        location: *const CUmemLocation,
    ) -> CUresult;
    pub fn cuDeviceGetDefaultMemPool(pool: *mut CUmemoryPool, device: CUdevice) -> CUresult;
    pub fn cuDeviceGetMemPool(pool: *mut CUmemoryPool, device: CUdevice) -> CUresult;
    pub fn cuDeviceSetMemPool(device: CUdevice, pool: CUmemoryPool) -> CUresult;
    #[cfg(feature = "cuda13")]
    pub fn cuMemGetDefaultMemPool(
        pool: *mut CUmemoryPool,
        location: *const CUmemLocation,
        kind: c_uint,
    ) -> CUresult;
    #[cfg(feature = "cuda13")]
    pub fn cuMemGetMemPool(pool: *mut CUmemoryPool, location: *const CUmemLocation, kind: c_uint)
    -> CUresult;
    #[cfg(feature = "cuda13")]
    pub fn cuMemSetMemPool(location: *const CUmemLocation, kind: c_uint, pool: CUmemoryPool) -> CUresult;
    pub fn cuLaunchHostFunc(stream: CUstream, function: Option<HostFunction>, data: *mut c_void) -> CUresult;
    #[cfg(feature = "cuda13")]
    pub fn cuLaunchHostFunc_v2(
        stream: CUstream,
        function: Option<HostFunction>,
        data: *mut c_void,
        mode: c_uint,
    ) -> CUresult;
    pub fn cuStreamAddCallback(
        stream: CUstream,
        callback: Option<StreamCallback>,
        data: *mut c_void,
        flags: c_uint,
    ) -> CUresult;
    pub fn cuCtxResetPersistingL2Cache() -> CUresult;
    pub fn cuGraphClone(clone: *mut CUgraph, graph: CUgraph) -> CUresult;
    pub fn cuLibraryLoadFromFile(
        library: *mut CUlibrary,
        path: *const c_char,
        jit_options: *mut c_uint,
        jit_values: *mut *mut c_void,
        jit_count: c_uint,
        options: *mut c_uint,
        values: *mut *mut c_void,
        count: c_uint,
    ) -> CUresult;
    pub fn cuMemHostAlloc(pointer: *mut *mut c_void, bytes: usize, flags: c_uint) -> CUresult;
    pub fn cuMemFreeHost(pointer: *mut c_void) -> CUresult;
    pub fn cuMemHostRegister_v2(pointer: *mut c_void, bytes: usize, flags: c_uint) -> CUresult;
    pub fn cuMemHostUnregister(pointer: *mut c_void) -> CUresult;
    pub fn cuMemHostGetDevicePointer_v2(
        address: *mut CUdeviceptr,
        pointer: *mut c_void,
        flags: c_uint,
    ) -> CUresult;
    pub fn cuMemHostGetFlags(flags: *mut c_uint, pointer: *mut c_void) -> CUresult;
    pub fn cuPointerGetAttributes(
        count: c_uint,
        attributes: *mut c_uint,
        values: *mut *mut c_void,
        address: CUdeviceptr,
    ) -> CUresult;

    pub fn cuMemcpy(destination: CUdeviceptr, source: CUdeviceptr, bytes: usize) -> CUresult;
    pub fn cuMemcpyAsync(
        destination: CUdeviceptr,
        source: CUdeviceptr,
        bytes: usize,
        stream: CUstream,
    ) -> CUresult;
    pub fn cuMemcpyHtoD_v2(destination: CUdeviceptr, source: *const c_void, bytes: usize) -> CUresult;
    pub fn cuMemcpyDtoH_v2(destination: *mut c_void, source: CUdeviceptr, bytes: usize) -> CUresult;
    pub fn cuMemcpyDtoD_v2(destination: CUdeviceptr, source: CUdeviceptr, bytes: usize) -> CUresult;
    pub fn cuMemcpyHtoDAsync_v2(
        destination: CUdeviceptr,
        source: *const c_void,
        bytes: usize,
        stream: CUstream,
    ) -> CUresult;
    pub fn cuMemcpyDtoHAsync_v2(
        destination: *mut c_void,
        source: CUdeviceptr,
        bytes: usize,
        stream: CUstream,
    ) -> CUresult;
    pub fn cuMemcpyDtoDAsync_v2(
        destination: CUdeviceptr,
        source: CUdeviceptr,
        bytes: usize,
        stream: CUstream,
    ) -> CUresult;
    pub fn cuMemcpyPeer(
        destination: CUdeviceptr,
        destination_context: CUcontext,
        source: CUdeviceptr,
        source_context: CUcontext,
        bytes: usize,
    ) -> CUresult;
    pub fn cuMemcpyPeerAsync(
        destination: CUdeviceptr,
        destination_context: CUcontext,
        source: CUdeviceptr,
        source_context: CUcontext,
        bytes: usize,
        stream: CUstream,
    ) -> CUresult;
    pub fn cuMemcpy2DUnaligned_v2(copy: *const Memcpy2D) -> CUresult;
    pub fn cuMemcpy2DAsync_v2(copy: *const Memcpy2D, stream: CUstream) -> CUresult;
    pub fn cuMemcpy3D_v2(copy: *const Memcpy3D) -> CUresult;
    pub fn cuMemcpy3DAsync_v2(copy: *const Memcpy3D, stream: CUstream) -> CUresult;
    pub fn cuMemcpy3DPeer(copy: *const Memcpy3D) -> CUresult;
    pub fn cuMemcpy3DPeerAsync(copy: *const Memcpy3D, stream: CUstream) -> CUresult;

    pub fn cuMemsetD8_v2(address: CUdeviceptr, value: u8, count: usize) -> CUresult;
    pub fn cuMemsetD8Async(address: CUdeviceptr, value: u8, count: usize, stream: CUstream) -> CUresult;
    pub fn cuMemsetD2D8_v2(
        address: CUdeviceptr,
        pitch: usize,
        value: u8,
        width: usize,
        height: usize,
    ) -> CUresult;
    pub fn cuMemsetD2D8Async(
        address: CUdeviceptr,
        pitch: usize,
        value: u8,
        width: usize,
        height: usize,
        stream: CUstream,
    ) -> CUresult;

    pub fn cuStreamCreate(stream: *mut CUstream, flags: c_uint) -> CUresult;
    pub fn cuStreamCreateWithPriority(stream: *mut CUstream, flags: c_uint, priority: c_int) -> CUresult;
    pub fn cuStreamDestroy_v2(stream: CUstream) -> CUresult;
    pub fn cuStreamSynchronize(stream: CUstream) -> CUresult;
    pub fn cuStreamQuery(stream: CUstream) -> CUresult;
    pub fn cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: c_uint) -> CUresult;
    pub fn cuStreamGetFlags(stream: CUstream, flags: *mut c_uint) -> CUresult;
    pub fn cuStreamGetPriority(stream: CUstream, priority: *mut c_int) -> CUresult;
    pub fn cuStreamGetId(stream: CUstream, id: *mut u64) -> CUresult;
    pub fn cuStreamGetDevice(stream: CUstream, device: *mut CUdevice) -> CUresult;
    pub fn cuStreamIsCapturing(stream: CUstream, status: *mut c_uint) -> CUresult;
    pub fn cuStreamBeginCapture_v2(stream: CUstream, mode: c_uint) -> CUresult;
    pub fn cuStreamEndCapture(stream: CUstream, graph: *mut CUgraph) -> CUresult;
    pub fn cuThreadExchangeStreamCaptureMode(mode: *mut c_uint) -> CUresult;
    pub fn cuStreamGetCaptureInfo_v3(
        stream: CUstream,
        status: *mut c_uint,
        id: *mut u64,
        graph: *mut CUgraph,
        dependencies: *mut *const CUgraphNode,
        edges: *mut *const c_void,
        count: *mut usize,
    ) -> CUresult;

    pub fn cuEventCreate(event: *mut CUevent, flags: c_uint) -> CUresult;
    pub fn cuEventDestroy_v2(event: CUevent) -> CUresult;
    pub fn cuEventRecord(event: CUevent, stream: CUstream) -> CUresult;
    pub fn cuEventRecordWithFlags(event: CUevent, stream: CUstream, flags: c_uint) -> CUresult;
    pub fn cuEventSynchronize(event: CUevent) -> CUresult;
    pub fn cuEventQuery(event: CUevent) -> CUresult;
    pub fn cuEventElapsedTime(milliseconds: *mut f32, start: CUevent, end: CUevent) -> CUresult;

    pub fn cuGraphCreate(graph: *mut CUgraph, flags: c_uint) -> CUresult;
    pub fn cuGraphDestroy(graph: CUgraph) -> CUresult;
    pub fn cuGraphInstantiateWithFlags(exec: *mut CUgraphExec, graph: CUgraph, flags: u64) -> CUresult;
    pub fn cuGraphInstantiateWithParams(
        exec: *mut CUgraphExec,
        graph: CUgraph,
        params: *mut GraphInstantiateParams,
    ) -> CUresult;
    pub fn cuGraphExecUpdate_v2(
        exec: CUgraphExec,
        graph: CUgraph,
        info: *mut CUgraphExecUpdateResultInfo,
    ) -> CUresult;
    pub fn cuGraphExecDestroy(exec: CUgraphExec) -> CUresult;
    pub fn cuGraphExecGetFlags(exec: CUgraphExec, flags: *mut u64) -> CUresult;
    pub fn cuGraphLaunch(exec: CUgraphExec, stream: CUstream) -> CUresult;
    pub fn cuGraphUpload(exec: CUgraphExec, stream: CUstream) -> CUresult;
    pub fn cuGraphGetNodes(graph: CUgraph, nodes: *mut CUgraphNode, count: *mut usize) -> CUresult;
    pub fn cuGraphGetRootNodes(graph: CUgraph, nodes: *mut CUgraphNode, count: *mut usize) -> CUresult;
    pub fn cuGraphNodeGetType(node: CUgraphNode, kind: *mut c_uint) -> CUresult;
    pub fn cuGraphAddEmptyNode(
        node: *mut CUgraphNode,
        graph: CUgraph,
        dependencies: *const CUgraphNode,
        count: usize,
    ) -> CUresult;
    pub fn cuGraphAddKernelNode_v2(
        node: *mut CUgraphNode,
        graph: CUgraph,
        dependencies: *const CUgraphNode,
        count: usize,
        params: *const KernelNodeParams,
    ) -> CUresult;
    pub fn cuGraphAddMemsetNode(
        node: *mut CUgraphNode,
        graph: CUgraph,
        dependencies: *const CUgraphNode,
        count: usize,
        params: *const MemsetNodeParams,
        context: CUcontext,
    ) -> CUresult;
    pub fn cuGraphKernelNodeGetParams_v2(node: CUgraphNode, params: *mut KernelNodeParams) -> CUresult;
    pub fn cuGraphKernelNodeSetParams_v2(node: CUgraphNode, params: *const KernelNodeParams) -> CUresult;
    pub fn cuGraphExecKernelNodeSetParams_v2(
        exec: CUgraphExec,
        node: CUgraphNode,
        params: *const KernelNodeParams,
    ) -> CUresult;

    pub fn cuLibraryLoadData(
        library: *mut CUlibrary,
        code: *const c_void,
        jit_options: *mut c_uint,
        jit_values: *mut *mut c_void,
        jit_count: c_uint,
        options: *mut c_uint,
        values: *mut *mut c_void,
        count: c_uint,
    ) -> CUresult;
    pub fn cuLibraryUnload(library: CUlibrary) -> CUresult;
    pub fn cuLibraryGetKernel(kernel: *mut CUkernel, library: CUlibrary, name: *const c_char) -> CUresult;
    pub fn cuLibraryGetKernelCount(count: *mut c_uint, library: CUlibrary) -> CUresult;
    pub fn cuLibraryEnumerateKernels(kernels: *mut CUkernel, count: c_uint, library: CUlibrary) -> CUresult;
    pub fn cuLibraryGetGlobal(
        address: *mut CUdeviceptr,
        bytes: *mut usize,
        library: CUlibrary,
        name: *const c_char,
    ) -> CUresult;
    pub fn cuKernelGetFunction(function: *mut CUfunction, kernel: CUkernel) -> CUresult;
    pub fn cuKernelGetAttribute(
        value: *mut c_int,
        attribute: c_uint,
        kernel: CUkernel,
        device: CUdevice,
    ) -> CUresult;
    pub fn cuKernelSetAttribute(
        attribute: c_uint,
        value: c_int,
        kernel: CUkernel,
        device: CUdevice,
    ) -> CUresult;
    pub fn cuKernelSetCacheConfig(kernel: CUkernel, config: c_uint, device: CUdevice) -> CUresult;
    pub fn cuKernelGetName(name: *mut *const c_char, kernel: CUkernel) -> CUresult;
    pub fn cuKernelGetParamInfo(
        kernel: CUkernel,
        index: usize,
        offset: *mut usize,
        bytes: *mut usize,
    ) -> CUresult;

    pub fn cuLaunchKernel(
        function: CUfunction,
        grid_x: c_uint,
        grid_y: c_uint,
        grid_z: c_uint,
        block_x: c_uint,
        block_y: c_uint,
        block_z: c_uint,
        shared_bytes: c_uint,
        stream: CUstream,
        params: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) -> CUresult;
    pub fn cuLaunchCooperativeKernel(
        function: CUfunction,
        grid_x: c_uint,
        grid_y: c_uint,
        grid_z: c_uint,
        block_x: c_uint,
        block_y: c_uint,
        block_z: c_uint,
        shared_bytes: c_uint,
        stream: CUstream,
        params: *mut *mut c_void,
    ) -> CUresult;
    pub fn cuLaunchKernelEx(
        config: *const CUlaunchConfig,
        function: CUfunction,
        params: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) -> CUresult;
    pub fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        blocks: *mut c_int,
        function: CUfunction,
        threads: c_int,
        shared_bytes: usize,
        flags: c_uint,
    ) -> CUresult;
    pub fn cuProfilerStart() -> CUresult;
    pub fn cuProfilerStop() -> CUresult;
}
