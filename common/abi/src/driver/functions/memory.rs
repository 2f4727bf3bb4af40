//! Functions for memory, its copies and fills, virtual memory and pools.

use core::ffi::{c_uchar, c_uint, c_ulonglong, c_ushort, c_void};

use crate::driver::{
    CUcontext, CUdevice, CUdeviceptr, CUmemAccessDesc, CUmemAllocationProp, CUmemGenericAllocationHandle,
    CUmemLocation, CUmemPoolProps, CUmemoryPool, CUresult, CUstream, Memcpy2D, Memcpy3D,
};

functions! {
    // Memory Management
    cuMemAlloc_v2(address: *mut CUdeviceptr, bytes: usize);
    cuMemAllocPitch_v2(
        address: *mut CUdeviceptr, pitch: *mut usize, width: usize, height: usize, element: c_uint
    );
    cuMemFree_v2(address: CUdeviceptr);
    cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
    cuMemGetAddressRange_v2(base: *mut CUdeviceptr, bytes: *mut usize, address: CUdeviceptr);
    cuMemAllocHost_v2(address: *mut *mut c_void, bytes: usize);
    cuMemHostAlloc(address: *mut *mut c_void, bytes: usize, flags: c_uint);
    cuMemFreeHost(address: *mut c_void);
    cuMemHostGetFlags(flags: *mut c_uint, address: *mut c_void);
    cuMemHostGetDevicePointer_v2(device: *mut CUdeviceptr, address: *mut c_void, flags: c_uint);
    cuMemHostRegister_v2(address: *mut c_void, bytes: usize, flags: c_uint);
    cuMemHostUnregister(address: *mut c_void);
    cuMemAllocManaged(address: *mut CUdeviceptr, bytes: usize, flags: c_uint);
    cuMemcpy(to: CUdeviceptr, from: CUdeviceptr, bytes: usize) | cuMemcpy_ptds;
    cuMemcpyAsync(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream) | cuMemcpyAsync_ptsz;
    cuMemcpyHtoD_v2(to: CUdeviceptr, from: *const c_void, bytes: usize) | cuMemcpyHtoD_v2_ptds;
    cuMemcpyHtoDAsync_v2(
        to: CUdeviceptr, from: *const c_void, bytes: usize, stream: CUstream
    ) | cuMemcpyHtoDAsync_v2_ptsz;
    cuMemcpyDtoH_v2(to: *mut c_void, from: CUdeviceptr, bytes: usize) | cuMemcpyDtoH_v2_ptds;
    cuMemcpyDtoHAsync_v2(
        to: *mut c_void, from: CUdeviceptr, bytes: usize, stream: CUstream
    ) | cuMemcpyDtoHAsync_v2_ptsz;
    cuMemcpyDtoD_v2(to: CUdeviceptr, from: CUdeviceptr, bytes: usize) | cuMemcpyDtoD_v2_ptds;
    cuMemcpyDtoDAsync_v2(
        to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream
    ) | cuMemcpyDtoDAsync_v2_ptsz;
    cuMemcpyPeer(
        to: CUdeviceptr, to_context: CUcontext, from: CUdeviceptr, from_context: CUcontext, bytes: usize
    ) | cuMemcpyPeer_ptds;
    cuMemcpyPeerAsync(
        to: CUdeviceptr, to_context: CUcontext, from: CUdeviceptr, from_context: CUcontext, bytes: usize,
        stream: CUstream
    ) | cuMemcpyPeerAsync_ptsz;
    cuMemcpy2D_v2(copy: *const Memcpy2D) | cuMemcpy2D_v2_ptds;
    cuMemcpy2DUnaligned_v2(copy: *const Memcpy2D) | cuMemcpy2DUnaligned_v2_ptds;
    cuMemcpy2DAsync_v2(copy: *const Memcpy2D, stream: CUstream) | cuMemcpy2DAsync_v2_ptsz;
    cuMemcpy3D_v2(copy: *const Memcpy3D) | cuMemcpy3D_v2_ptds;
    cuMemcpy3DAsync_v2(copy: *const Memcpy3D, stream: CUstream) | cuMemcpy3DAsync_v2_ptsz;
    cuMemcpy3DPeer(copy: *const Memcpy3D) | cuMemcpy3DPeer_ptds;
    cuMemcpy3DPeerAsync(copy: *const Memcpy3D, stream: CUstream) | cuMemcpy3DPeerAsync_ptsz;
    cuMemsetD8_v2(to: CUdeviceptr, value: c_uchar, count: usize) | cuMemsetD8_v2_ptds;
    cuMemsetD16_v2(to: CUdeviceptr, value: c_ushort, count: usize) | cuMemsetD16_v2_ptds;
    cuMemsetD32_v2(to: CUdeviceptr, value: c_uint, count: usize) | cuMemsetD32_v2_ptds;
    cuMemsetD8Async(to: CUdeviceptr, value: c_uchar, count: usize, stream: CUstream) | cuMemsetD8Async_ptsz;
    cuMemsetD16Async(
        to: CUdeviceptr, value: c_ushort, count: usize, stream: CUstream
    ) | cuMemsetD16Async_ptsz;
    cuMemsetD32Async(to: CUdeviceptr, value: c_uint, count: usize, stream: CUstream) | cuMemsetD32Async_ptsz;
    cuMemsetD2D8_v2(
        destination: CUdeviceptr, pitch: usize, value: c_uchar, width: usize, height: usize
    ) | cuMemsetD2D8_v2_ptds;
    cuMemsetD2D16_v2(
        destination: CUdeviceptr, pitch: usize, value: c_ushort, width: usize, height: usize
    ) | cuMemsetD2D16_v2_ptds;
    cuMemsetD2D32_v2(
        destination: CUdeviceptr, pitch: usize, value: c_uint, width: usize, height: usize
    ) | cuMemsetD2D32_v2_ptds;
    cuMemsetD2D8Async(
        destination: CUdeviceptr, pitch: usize, value: c_uchar, width: usize, height: usize,
        stream: CUstream
    ) | cuMemsetD2D8Async_ptsz;
    cuMemsetD2D16Async(
        destination: CUdeviceptr, pitch: usize, value: c_ushort, width: usize, height: usize,
        stream: CUstream
    ) | cuMemsetD2D16Async_ptsz;
    cuMemsetD2D32Async(
        destination: CUdeviceptr, pitch: usize, value: c_uint, width: usize, height: usize, stream: CUstream
    ) | cuMemsetD2D32Async_ptsz;

    // Virtual Memory Management
    cuMemGetAllocationGranularity(bytes: *mut usize, prop: *const CUmemAllocationProp, option: c_uint);
    cuMemCreate(
        handle: *mut CUmemGenericAllocationHandle, bytes: usize, prop: *const CUmemAllocationProp,
        flags: c_ulonglong
    );
    cuMemRelease(handle: CUmemGenericAllocationHandle);
    cuMemRetainAllocationHandle(handle: *mut CUmemGenericAllocationHandle, address: *mut c_void);
    cuMemGetAllocationPropertiesFromHandle(
        prop: *mut CUmemAllocationProp, handle: CUmemGenericAllocationHandle
    );
    cuMemAddressReserve(
        address: *mut CUdeviceptr, bytes: usize, alignment: usize, wish: CUdeviceptr, flags: c_ulonglong
    );
    cuMemAddressFree(address: CUdeviceptr, bytes: usize);
    cuMemMap(
        address: CUdeviceptr, bytes: usize, offset: usize, handle: CUmemGenericAllocationHandle,
        flags: c_ulonglong
    );
    cuMemUnmap(address: CUdeviceptr, bytes: usize);
    cuMemSetAccess(address: CUdeviceptr, bytes: usize, rights: *const CUmemAccessDesc, count: usize);
    cuMemGetAccess(flags: *mut c_ulonglong, location: *const CUmemLocation, address: CUdeviceptr);

    // Stream Ordered Memory Allocator
    cuMemPoolCreate(pool: *mut CUmemoryPool, props: *const CUmemPoolProps);
    cuMemPoolDestroy(pool: CUmemoryPool);
    cuMemPoolTrimTo(pool: CUmemoryPool, least: usize);
    cuMemPoolSetAttribute(pool: CUmemoryPool, attribute: c_uint, value: *mut c_void);
    cuMemPoolGetAttribute(pool: CUmemoryPool, attribute: c_uint, value: *mut c_void);
    cuMemPoolSetAccess(pool: CUmemoryPool, rights: *const CUmemAccessDesc, count: usize);
    cuMemPoolGetAccess(flags: *mut c_uint, pool: CUmemoryPool, location: *mut CUmemLocation);
    cuDeviceGetDefaultMemPool(pool: *mut CUmemoryPool, ordinal: CUdevice);
    cuDeviceGetMemPool(pool: *mut CUmemoryPool, ordinal: CUdevice);
    cuDeviceSetMemPool(ordinal: CUdevice, pool: CUmemoryPool);
    cuMemGetDefaultMemPool(pool: *mut CUmemoryPool, location: *mut CUmemLocation, kind: c_uint);
    cuMemGetMemPool(pool: *mut CUmemoryPool, location: *mut CUmemLocation, kind: c_uint);
    cuMemSetMemPool(location: *mut CUmemLocation, kind: c_uint, pool: CUmemoryPool);
    cuMemAllocAsync(address: *mut CUdeviceptr, bytes: usize, stream: CUstream) | cuMemAllocAsync_ptsz;
    cuMemAllocFromPoolAsync(
        address: *mut CUdeviceptr, bytes: usize, pool: CUmemoryPool, stream: CUstream
    ) | cuMemAllocFromPoolAsync_ptsz;
    cuMemFreeAsync(address: CUdeviceptr, stream: CUstream) | cuMemFreeAsync_ptsz;

    // Unified Addressing
    cuPointerGetAttribute(data: *mut c_void, attribute: c_uint, address: CUdeviceptr);
    cuPointerGetAttributes(
        count: c_uint, attributes: *mut c_uint, data: *mut *mut c_void, address: CUdeviceptr
    );
}
