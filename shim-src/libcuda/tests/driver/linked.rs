//! The shim as a library that is linked into the tests: finds its exports by their names.

use std::ffi::c_void;

use vgpu_conformance::calls::{self, functions};
use vgpu_libcuda as _;

macro_rules! exports {
    ($($name:ident),* $(,)?) => {
        &[$((stringify!($name), functions::$name as functions::$name as *const c_void)),*]
    };
}

/// Directs the driver calls of this process to the linked shim.
pub fn choose() {
    calls::choose(Box::new(|name| {
        let exports: &[(&str, *const c_void)] = exports! {
            cuCtxCreate_v2, cuCtxCreate_v3, cuCtxDestroy, cuCtxDestroy_v2, cuCtxGetCurrent, cuCtxGetDevice,
            cuCtxPopCurrent_v2, cuCtxPushCurrent_v2, cuCtxSetCurrent, cuCtxSynchronize, cuDeviceGet,
            cuDeviceGetAttribute, cuDeviceGetByPCIBusId, cuDeviceGetCount, cuDeviceGetDefaultMemPool,
            cuDeviceGetMemPool, cuDeviceGetName, cuDeviceGetPCIBusId, cuDeviceGetUuid, cuDeviceGetUuid_v2,
            cuDevicePrimaryCtxGetState, cuDevicePrimaryCtxRelease_v2, cuDevicePrimaryCtxReset_v2,
            cuDevicePrimaryCtxRetain, cuDeviceSetMemPool, cuDeviceTotalMem_v2, cuDriverGetVersion,
            cuEventCreate, cuEventDestroy_v2, cuEventElapsedTime, cuEventQuery, cuEventRecord,
            cuEventSynchronize, cuFuncGetAttribute, cuFuncGetParamInfo, cuFuncSetAttribute, cuGetErrorName,
            cuGetExportTable, cuGraphAddDependencies, cuGraphAddDependencies_v2, cuGraphDestroy,
            cuGraphExecDestroy, cuGraphExecKernelNodeSetParams_v2, cuGraphExecUpdate, cuGraphGetEdges,
            cuGraphGetEdges_v2, cuGraphGetNodes, cuGraphInstantiateWithFlags, cuGraphKernelNodeGetParams_v2,
            cuGraphKernelNodeSetParams_v2, cuGraphLaunch, cuGraphNodeGetDependencies,
            cuGraphNodeGetDependencies_v2, cuGraphNodeGetType, cuInit, cuKernelGetFunction,
            cuLaunchHostFunc, cuLaunchKernel, cuLaunchKernelEx, cuLibraryGetKernel, cuLibraryLoadData,
            cuLibraryUnload, cuLinkAddData_v2, cuLinkAddFile, cuLinkComplete, cuLinkCreate, cuLinkCreate_v2,
            cuLinkDestroy, cuMemAddressFree, cuMemAddressReserve, cuMemAllocAsync, cuMemAllocFromPoolAsync,
            cuMemAllocHost_v2, cuMemAllocManaged, cuMemAllocPitch_v2, cuMemAlloc_v2, cuMemCreate,
            cuMemFreeAsync, cuMemFreeHost, cuMemFree_v2, cuMemGetAccess, cuMemGetAddressRange_v2,
            cuMemGetAllocationGranularity, cuMemGetAllocationPropertiesFromHandle, cuMemGetInfo_v2,
            cuMemHostAlloc, cuMemHostGetFlags, cuMemHostRegister_v2, cuMemHostUnregister, cuMemMap,
            cuMemPoolCreate, cuMemPoolDestroy, cuMemPoolGetAccess, cuMemPoolGetAttribute,
            cuMemPoolSetAccess, cuMemPoolSetAttribute, cuMemPoolTrimTo, cuMemRelease,
            cuMemRetainAllocationHandle, cuMemSetAccess, cuMemUnmap, cuMemcpy, cuMemcpy2DAsync_v2,
            cuMemcpy2DAsync_v2_ptsz, cuMemcpy2DUnaligned_v2, cuMemcpy2DUnaligned_v2_ptds, cuMemcpy2D_v2,
            cuMemcpy2D_v2_ptds, cuMemcpy3DAsync_v2, cuMemcpy3DAsync_v2_ptsz, cuMemcpy3DPeer,
            cuMemcpy3DPeerAsync, cuMemcpy3DPeerAsync_ptsz, cuMemcpy3DPeer_ptds, cuMemcpy3D_v2,
            cuMemcpy3D_v2_ptds, cuMemcpyAsync, cuMemcpyAsync_ptsz, cuMemcpyDtoDAsync_v2,
            cuMemcpyDtoDAsync_v2_ptsz, cuMemcpyDtoD_v2, cuMemcpyDtoD_v2_ptds, cuMemcpyDtoHAsync_v2,
            cuMemcpyDtoHAsync_v2_ptsz, cuMemcpyDtoH_v2, cuMemcpyDtoH_v2_ptds, cuMemcpyHtoDAsync_v2,
            cuMemcpyHtoDAsync_v2_ptsz, cuMemcpyHtoD_v2, cuMemcpyHtoD_v2_ptds, cuMemcpyPeer,
            cuMemcpyPeerAsync, cuMemcpyPeerAsync_ptsz, cuMemcpyPeer_ptds, cuMemcpy_ptds, cuMemsetD16Async,
            cuMemsetD16Async_ptsz, cuMemsetD16_v2, cuMemsetD16_v2_ptds, cuMemsetD2D16Async,
            cuMemsetD2D16Async_ptsz, cuMemsetD2D16_v2, cuMemsetD2D16_v2_ptds, cuMemsetD2D32Async,
            cuMemsetD2D32Async_ptsz, cuMemsetD2D32_v2, cuMemsetD2D32_v2_ptds, cuMemsetD2D8Async,
            cuMemsetD2D8Async_ptsz, cuMemsetD2D8_v2, cuMemsetD2D8_v2_ptds, cuMemsetD32Async,
            cuMemsetD32Async_ptsz, cuMemsetD32_v2, cuMemsetD32_v2_ptds, cuMemsetD8Async,
            cuMemsetD8Async_ptsz, cuMemsetD8_v2, cuMemsetD8_v2_ptds, cuModuleGetFunction,
            cuModuleGetGlobal_v2, cuModuleLoadData, cuModuleLoadDataEx, cuModuleUnload,
            cuOccupancyMaxActiveBlocksPerMultiprocessor, cuPointerGetAttribute, cuStreamAddCallback,
            cuStreamBeginCapture_v2, cuStreamCreate, cuStreamDestroy_v2, cuStreamEndCapture,
            cuStreamGetCaptureInfo, cuStreamGetCaptureInfo_v2, cuStreamGetCaptureInfo_v3, cuStreamGetPriority, cuStreamIsCapturing, cuStreamQuery,
            cuStreamSynchronize, cuStreamUpdateCaptureDependencies, cuStreamUpdateCaptureDependencies_v2, cuStreamWaitEvent,
            cuThreadExchangeStreamCaptureMode,
        };
        let found = exports.iter().find(|(export, _)| *export == name);
        Some(found.unwrap_or_else(|| panic!("{name} is missing in the list of {}", file!())).1)
    }));
}
