//! Functions for initialisation, errors, devices, contexts and entry points.

use core::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};

use crate::driver::{CUcontext, CUctxCreateParams, CUdevice, CUdevprop, CUresult, CUuuid};

functions! {
    // Initialization and Version Management
    cuInit(flags: c_uint);
    cuDriverGetVersion(version: *mut c_int);

    // Error Handling
    cuGetErrorString(error: CUresult, text: *mut *const c_char);
    cuGetErrorName(error: CUresult, text: *mut *const c_char);

    // Device Management
    cuDeviceGetCount(count: *mut c_int);
    cuDeviceGet(out: *mut CUdevice, ordinal: c_int);
    cuDeviceGetName(text: *mut c_char, bytes: c_int, ordinal: CUdevice);
    cuDeviceGetUuid(uuid: *mut CUuuid, ordinal: CUdevice);
    cuDeviceGetUuid_v2(uuid: *mut CUuuid, ordinal: CUdevice);
    cuDeviceTotalMem_v2(bytes: *mut usize, ordinal: CUdevice);
    cuDeviceTotalMem(bytes: *mut c_uint, ordinal: CUdevice);
    cuDeviceGetAttribute(value: *mut c_int, id: c_int, ordinal: CUdevice);
    cuDeviceComputeCapability(major: *mut c_int, minor: *mut c_int, ordinal: CUdevice);
    cuDeviceGetProperties(properties: *mut CUdevprop, ordinal: CUdevice);
    cuDeviceGetPCIBusId(text: *mut c_char, bytes: c_int, ordinal: CUdevice);
    cuDeviceGetByPCIBusId(out: *mut CUdevice, text: *const c_char);
    cuDeviceGetExecAffinitySupport(supported: *mut c_int, kind: c_uint, ordinal: CUdevice);

    // Primary Context Management
    cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice);
    cuDevicePrimaryCtxRelease_v2(device: CUdevice);
    cuDevicePrimaryCtxRelease(device: CUdevice);
    cuDevicePrimaryCtxReset_v2(device: CUdevice);
    cuDevicePrimaryCtxReset(device: CUdevice);
    cuDevicePrimaryCtxSetFlags_v2(device: CUdevice, flags: c_uint);
    cuDevicePrimaryCtxSetFlags(device: CUdevice, flags: c_uint);
    cuDevicePrimaryCtxGetState(device: CUdevice, flags: *mut c_uint, active: *mut c_int);

    // Context Management
    cuCtxCreate_v2(context: *mut CUcontext, flags: c_uint, device: CUdevice);
    cuCtxCreate_v3(
        context: *mut CUcontext, affinity: *mut c_void, count: c_int, flags: c_uint, device: CUdevice
    );
    cuCtxCreate_v4(context: *mut CUcontext, params: *mut CUctxCreateParams, flags: c_uint, device: CUdevice);
    cuCtxDestroy_v2(context: CUcontext);
    cuCtxDestroy(context: CUcontext);
    cuCtxPushCurrent_v2(context: CUcontext);
    cuCtxPushCurrent(context: CUcontext);
    cuCtxPopCurrent_v2(context: *mut CUcontext);
    cuCtxPopCurrent(context: *mut CUcontext);
    cuCtxSetCurrent(context: CUcontext);
    cuCtxGetCurrent(context: *mut CUcontext);
    cuCtxGetDevice(device: *mut CUdevice);
    cuCtxGetDevice_v2(device: *mut CUdevice, context: CUcontext);
    cuCtxGetFlags(flags: *mut c_uint);
    cuCtxSetFlags(flags: c_uint);
    cuCtxGetId(context: CUcontext, id: *mut c_ulonglong);
    cuCtxGetApiVersion(context: CUcontext, version: *mut c_uint);
    cuCtxSynchronize();
    cuCtxSynchronize_v2(context: CUcontext);
    cuCtxGetLimit(value: *mut usize, which: c_uint);
    cuCtxSetLimit(which: c_uint, value: usize);
    cuCtxGetCacheConfig(config: *mut c_uint);
    cuCtxSetCacheConfig(config: c_uint);
    cuCtxGetSharedMemConfig(config: *mut c_uint);
    cuCtxSetSharedMemConfig(config: c_uint);
    cuCtxGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int);
    cuCtxResetPersistingL2Cache();

    // Peer Context Memory Access
    cuDeviceCanAccessPeer(can: *mut c_int, ordinal: CUdevice, peer: CUdevice);
    cuDeviceGetP2PAttribute(value: *mut c_int, id: c_uint, from: CUdevice, to: CUdevice);
    cuCtxEnablePeerAccess(peer: CUcontext, flags: c_uint);
    cuCtxDisablePeerAccess(peer: CUcontext);

    // Driver Entry Point Access
    cuGetProcAddress_v2(
        symbol: *const c_char, function: *mut *mut c_void, version: c_int, flags: u64, status: *mut u32
    );
    cuGetProcAddress(symbol: *const c_char, function: *mut *mut c_void, version: c_int, flags: u64);

    // Profiler Control
    cuProfilerStart();
    cuProfilerStop();

    // Private tables
    cuGetExportTable(out: *mut *const c_void, uuid: *const CUuuid);
}
