/* The calls of the driver API that driver.c drives, and the structures they take. */
#ifndef VGPU_STANDINS_DRIVER_API_H
#define VGPU_STANDINS_DRIVER_API_H

#include <stddef.h>
#include <stdint.h>

typedef uint64_t address;
typedef struct {
    size_t x, y;
    unsigned type;
    void *host;
    address device;
    void *array;
    size_t pitch;
} side2d;
typedef struct {
    side2d src, dst;
    size_t width, height;
} copy2d;
typedef struct {
    size_t x, y, z, lod;
    unsigned type;
    void *host;
    address device;
    void *array, *context;
    size_t pitch, height;
} side3d;
typedef struct {
    side3d src, dst;
    size_t width, height, depth;
} copy3d;
typedef struct {
    unsigned type, handles;
    unsigned location, id;
    void *security;
    unsigned char flags[8];
} allocation;
typedef struct {
    unsigned location, id, flags;
} access_rights;
typedef struct {
    unsigned type, handles;
    unsigned location, id;
    void *security;
    size_t most;
    unsigned char rest[56];
} pool_properties;
typedef struct {
    address dst;
    size_t pitch;
    unsigned value, element;
    size_t width, height;
} fill_node;
typedef struct {
    void *function;
    unsigned grid[3], block[3], shared;
    void **params, **extra;
    void *kernel, *context; /* not in version 1 */
} kernel_node;
typedef struct {
    uint64_t flags;
    void *stream, *node;
    unsigned result;
} instantiation;
typedef struct {
    unsigned grid[3], block[3], shared;
    void *stream, *attributes;
    unsigned count;
} launch_config;

int cuInit(unsigned), cuDriverGetVersion(int *);
int cuGetErrorName(int, const char **), cuGetErrorString(int, const char **);
int cuGetProcAddress(const char *, void **, int, uint64_t);
int cuGetProcAddress_v2(const char *, void **, int, uint64_t, int *);
int cuDeviceGetCount(int *), cuDeviceGet(int *, int), cuDeviceGetAttribute(int *, int, int);
int cuDeviceGetName(char *, int, int), cuDeviceGetUuid(void *, int), cuDeviceGetUuid_v2(void *, int);
int cuDeviceTotalMem_v2(size_t *, int), cuDeviceGetPCIBusId(char *, int, int), cuDeviceGetByPCIBusId(int *, const char *);
int cuDeviceComputeCapability(int *, int *, int), cuDeviceGetProperties(void *, int);
int cuDeviceCanAccessPeer(int *, int, int), cuDeviceGetP2PAttribute(int *, unsigned, int, int);
int cuDevicePrimaryCtxRetain(void **, int), cuDevicePrimaryCtxRelease_v2(int), cuDevicePrimaryCtxReset_v2(int);
int cuDevicePrimaryCtxSetFlags_v2(int, unsigned), cuDevicePrimaryCtxGetState(int, unsigned *, int *);
int cuCtxCreate_v2(void **, unsigned, int), cuCtxCreate_v3(void **, void *, int, unsigned, int);
int cuCtxDestroy(void *), cuCtxDestroy_v2(void *), cuCtxPushCurrent_v2(void *), cuCtxPopCurrent_v2(void **);
int cuCtxSetCurrent(void *), cuCtxGetCurrent(void **), cuCtxGetDevice(int *), cuCtxGetFlags(unsigned *);
int cuCtxGetId(void *, uint64_t *), cuCtxSynchronize(void), cuCtxGetApiVersion(void *, unsigned *);
int cuCtxGetLimit(size_t *, unsigned), cuCtxSetLimit(unsigned, size_t), cuCtxGetCacheConfig(unsigned *);
int cuCtxSetCacheConfig(unsigned), cuCtxGetStreamPriorityRange(int *, int *);
int cuCtxEnablePeerAccess(void *, unsigned), cuCtxDisablePeerAccess(void *);
int cuMemGetInfo_v2(size_t *, size_t *), cuMemAlloc_v2(address *, size_t), cuMemFree_v2(address);
int cuMemAllocPitch_v2(address *, size_t *, size_t, size_t, unsigned);
int cuMemGetAddressRange_v2(address *, size_t *, address), cuMemAllocAsync(address *, size_t, void *);
int cuMemFreeAsync(address, void *), cuMemAllocManaged(address *, size_t, unsigned);
int cuMemAllocHost_v2(void **, size_t), cuMemHostAlloc(void **, size_t, unsigned), cuMemFreeHost(void *);
int cuMemHostGetDevicePointer_v2(address *, void *, unsigned), cuMemHostGetFlags(unsigned *, void *);
int cuMemHostRegister_v2(void *, size_t, unsigned), cuMemHostUnregister(void *);
int cuPointerGetAttribute(void *, int, address), cuPointerGetAttributes(unsigned, int *, void **, address);
int cuMemcpy(address, address, size_t), cuMemcpyAsync(address, address, size_t, void *);
int cuMemcpyHtoD_v2(address, const void *, size_t), cuMemcpyDtoH_v2(void *, address, size_t);
int cuMemcpyDtoD_v2(address, address, size_t), cuMemcpyHtoDAsync_v2(address, const void *, size_t, void *);
int cuMemcpyDtoHAsync_v2(void *, address, size_t, void *), cuMemcpyDtoDAsync_v2(address, address, size_t, void *);
int cuMemcpyHtoD_v2_ptds(address, const void *, size_t), cuMemcpyDtoH_v2_ptds(void *, address, size_t);
int cuMemcpy2D_v2(const copy2d *), cuMemcpy2DUnaligned_v2(const copy2d *), cuMemcpy2DAsync_v2(const copy2d *, void *);
int cuMemcpy3D_v2(const copy3d *), cuMemcpy3DAsync_v2(const copy3d *, void *), cuMemcpyPeer(address, void *, address, void *, size_t);
int cuMemsetD8_v2(address, unsigned char, size_t), cuMemsetD16_v2(address, unsigned short, size_t);
int cuMemsetD32_v2(address, unsigned, size_t), cuMemsetD8Async(address, unsigned char, size_t, void *);
int cuMemsetD2D8_v2(address, size_t, unsigned char, size_t, size_t);
int cuMemsetD2D32_v2(address, size_t, unsigned, size_t, size_t);
int cuMemGetAllocationGranularity(size_t *, const allocation *, unsigned), cuMemCreate(uint64_t *, size_t, const allocation *, uint64_t);
int cuMemRelease(uint64_t), cuMemAddressReserve(address *, size_t, size_t, address, uint64_t);
int cuMemAddressFree(address, size_t), cuMemMap(address, size_t, size_t, uint64_t, uint64_t), cuMemUnmap(address, size_t);
int cuMemSetAccess(address, size_t, const access_rights *, size_t), cuMemGetAccess(uint64_t *, const void *, address);
int cuMemRetainAllocationHandle(uint64_t *, void *), cuMemGetAllocationPropertiesFromHandle(allocation *, uint64_t);
int cuMemExportToShareableHandle(void *, uint64_t, unsigned, uint64_t);
int cuMemPoolCreate(void **, const pool_properties *), cuMemPoolDestroy(void *), cuMemPoolTrimTo(void *, size_t);
int cuMemPoolSetAttribute(void *, int, void *), cuMemPoolGetAttribute(void *, int, void *);
int cuMemPoolGetAccess(unsigned *, void *, const void *), cuMemAllocFromPoolAsync(address *, size_t, void *, void *);
int cuDeviceGetDefaultMemPool(void **, int), cuDeviceGetMemPool(void **, int), cuDeviceSetMemPool(int, void *);
int cuLaunchHostFunc(void *, void (*)(void *), void *);
int cuStreamAddCallback(void *, void (*)(void *, int, void *), void *, unsigned);
int cuLaunchHostFunc_ptsz(void *, void (*)(void *), void *), cuLaunchHostFunc_v2(void *, void (*)(void *), void *, unsigned);
int cuLaunchHostFunc_v2_ptsz(void *, void (*)(void *), void *, unsigned);
int cuStreamAddCallback_ptsz(void *, void (*)(void *, int, void *), void *, unsigned);
int cuMemAllocFromPoolAsync_ptsz(address *, size_t, void *, void *), cuMemPoolSetAccess(void *, const access_rights *, size_t);
int cuMemGetDefaultMemPool(void **, const void *, int), cuMemGetMemPool(void **, const void *, int);
int cuMemSetMemPool(const void *, int, void *);
int cuStreamCreate(void **, unsigned), cuStreamCreateWithPriority(void **, unsigned, int), cuStreamDestroy_v2(void *);
int cuStreamSynchronize(void *), cuStreamQuery(void *), cuStreamWaitEvent(void *, void *, unsigned);
int cuStreamSynchronize_ptsz(void *), cuStreamGetFlags(void *, unsigned *), cuStreamGetPriority(void *, int *);
int cuStreamGetId(void *, uint64_t *), cuStreamGetCtx(void *, void **), cuStreamIsCapturing(void *, unsigned *);
int cuStreamBeginCapture_v2(void *, unsigned), cuStreamEndCapture(void *, void **);
int cuStreamGetCaptureInfo_v2(void *, unsigned *, uint64_t *, void **, const void **, size_t *);
int cuEventCreate(void **, unsigned), cuEventDestroy_v2(void *), cuEventRecord(void *, void *), cuEventSynchronize(void *);
int cuEventQuery(void *), cuEventElapsedTime(float *, void *, void *);
int cuGraphCreate(void **, unsigned), cuGraphDestroy(void *), cuGraphInstantiateWithFlags(void **, void *, uint64_t);
int cuGraphExecUpdate_v2(void *, void *, void *), cuGraphLaunch(void *, void *), cuGraphExecDestroy(void *);
int cuGraphGetNodes(void *, void **, size_t *), cuGraphNodeGetType(void *, unsigned *), cuGraphClone(void **, void *);
int cuModuleLoadData(void **, const void *), cuModuleUnload(void *), cuModuleGetFunction(void **, void *, const char *);
int cuModuleLoadDataEx(void **, const void *, unsigned, void *, void *), cuModuleLoadFatBinary(void **, const void *);
int cuModuleGetGlobal_v2(address *, size_t *, void *, const char *);
int cuLibraryLoadData(void **, const void *, void *, void *, unsigned, void *, void *, unsigned), cuLibraryUnload(void *);
int cuLibraryGetKernel(void **, void *, const char *), cuLibraryGetGlobal(address *, size_t *, void *, const char *);
int cuKernelGetFunction(void **, void *), cuKernelGetAttribute(int *, int, void *, int);
int cuKernelSetAttribute(int, int, void *, int), cuFuncGetAttribute(int *, int, void *), cuFuncSetAttribute(void *, int, int);
int cuFuncSetCacheConfig(void *, unsigned);
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *, void *, int, size_t);
int cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *, void *, int, size_t, unsigned);
int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
int cuLaunchKernelEx(const launch_config *, void *, void **, void **);
int cuLaunchCooperativeKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **);
int cuCtxCreate_v4(void **, void *, unsigned, int), cuCtxGetDevice_v2(int *, void *), cuCtxSynchronize_v2(void *);
int cuCtxGetSharedMemConfig(unsigned *), cuCtxSetSharedMemConfig(unsigned), cuCtxSetFlags(unsigned), cuCtxResetPersistingL2Cache(void);
int cuDeviceGetExecAffinitySupport(int *, int, int), cuProfilerStart(void), cuProfilerStop(void);
int cuEventElapsedTime_v2(float *, void *, void *), cuEventRecordWithFlags(void *, void *, unsigned);
int cuFuncGetModule(void **, void *), cuFuncGetName(const char **, void *), cuFuncGetParamCount(void *, size_t *);
int cuFuncGetParamInfo(void *, size_t, size_t *, size_t *), cuFuncIsLoaded(int *, void *), cuFuncLoad(void *);
int cuKernelGetLibrary(void **, void *), cuKernelGetName(const char **, void *), cuKernelGetParamCount(void *, size_t *);
int cuKernelGetParamInfo(void *, size_t, size_t *, size_t *), cuKernelSetCacheConfig(void *, unsigned, int);
int cuLibraryEnumerateKernels(void **, unsigned, void *), cuLibraryGetKernelCount(unsigned *, void *);
int cuLibraryGetModule(void **, void *), cuLibraryLoadFromFile(void **, const char *, void *, void *, unsigned, void *, void *, unsigned);
int cuModuleEnumerateFunctions(void **, unsigned, void *), cuModuleGetFunctionCount(unsigned *, void *);
int cuModuleGetLoadingMode(int *), cuModuleLoad(void **, const char *);
int cuOccupancyMaxPotentialBlockSize(int *, int *, void *, void *, size_t, int);
int cuOccupancyMaxPotentialBlockSizeWithFlags(int *, int *, void *, void *, size_t, int, unsigned);
int cuMemcpy3DPeer(const copy3d *), cuMemcpy3DPeerAsync(const copy3d *, void *), cuMemcpyPeerAsync(address, void *, address, void *, size_t, void *);
int cuMemsetD16Async(address, unsigned short, size_t, void *), cuMemsetD32Async(address, unsigned, size_t, void *);
int cuMemsetD2D16_v2(address, size_t, unsigned short, size_t, size_t), cuMemsetD2D8Async(address, size_t, unsigned char, size_t, size_t, void *);
int cuMemsetD2D16Async(address, size_t, unsigned short, size_t, size_t, void *), cuMemsetD2D32Async(address, size_t, unsigned, size_t, size_t, void *);
int cuStreamGetCaptureInfo_v3(void *, unsigned *, uint64_t *, void **, void *const **, const void **, size_t *);
int cuStreamUpdateCaptureDependencies(void *, void **, size_t, unsigned);
int cuStreamUpdateCaptureDependencies_v2(void *, void **, const void *, size_t, unsigned);
int cuStreamGetCtx_v2(void *, void **, void **), cuStreamGetDevice(void *, int *), cuThreadExchangeStreamCaptureMode(unsigned *);
int cuGraphAddEmptyNode(void **, void *, void *const *, size_t), cuGraphAddMemsetNode(void **, void *, void *const *, size_t, const fill_node *, void *);
int cuGraphAddKernelNode(void **, void *, void *const *, size_t, const kernel_node *);
int cuGraphAddKernelNode_v2(void **, void *, void *const *, size_t, const kernel_node *);
int cuGraphKernelNodeGetParams(void *, kernel_node *), cuGraphKernelNodeGetParams_v2(void *, kernel_node *);
int cuGraphKernelNodeSetParams(void *, const kernel_node *), cuGraphKernelNodeSetParams_v2(void *, const kernel_node *);
int cuGraphExecKernelNodeSetParams(void *, void *, const kernel_node *), cuGraphExecKernelNodeSetParams_v2(void *, void *, const kernel_node *);
int cuGraphExecGetFlags(void *, uint64_t *), cuGraphExecUpdate(void *, void *, void **, int *), cuGraphUpload(void *, void *);
int cuGraphGetRootNodes(void *, void **, size_t *), cuGraphNodeGetDependencies(void *, void **, size_t *);
int cuGraphInstantiate_v2(void **, void *, void **, char *, size_t), cuGraphInstantiateWithParams(void **, void *, instantiation *);

/* The per-thread default stream's entries. */
int cuMemcpy_ptds(address, address, size_t), cuMemcpyAsync_ptsz(address, address, size_t, void *);
int cuMemcpyDtoD_v2_ptds(address, address, size_t), cuMemcpyHtoDAsync_v2_ptsz(address, const void *, size_t, void *);
int cuMemcpyDtoHAsync_v2_ptsz(void *, address, size_t, void *), cuMemcpyDtoDAsync_v2_ptsz(address, address, size_t, void *);
int cuMemcpyPeer_ptds(address, void *, address, void *, size_t), cuMemcpyPeerAsync_ptsz(address, void *, address, void *, size_t, void *);
int cuMemcpy2D_v2_ptds(const copy2d *), cuMemcpy2DUnaligned_v2_ptds(const copy2d *), cuMemcpy2DAsync_v2_ptsz(const copy2d *, void *);
int cuMemcpy3D_v2_ptds(const copy3d *), cuMemcpy3DAsync_v2_ptsz(const copy3d *, void *), cuMemcpy3DPeer_ptds(const copy3d *);
int cuMemcpy3DPeerAsync_ptsz(const copy3d *, void *);
int cuMemsetD8_v2_ptds(address, unsigned char, size_t), cuMemsetD16_v2_ptds(address, unsigned short, size_t), cuMemsetD32_v2_ptds(address, unsigned, size_t);
int cuMemsetD8Async_ptsz(address, unsigned char, size_t, void *), cuMemsetD16Async_ptsz(address, unsigned short, size_t, void *);
int cuMemsetD32Async_ptsz(address, unsigned, size_t, void *);
int cuMemsetD2D8_v2_ptds(address, size_t, unsigned char, size_t, size_t), cuMemsetD2D16_v2_ptds(address, size_t, unsigned short, size_t, size_t);
int cuMemsetD2D32_v2_ptds(address, size_t, unsigned, size_t, size_t), cuMemsetD2D8Async_ptsz(address, size_t, unsigned char, size_t, size_t, void *);
int cuMemsetD2D16Async_ptsz(address, size_t, unsigned short, size_t, size_t, void *);
int cuMemsetD2D32Async_ptsz(address, size_t, unsigned, size_t, size_t, void *);
int cuMemAllocAsync_ptsz(address *, size_t, void *), cuMemFreeAsync_ptsz(address, void *);
int cuEventRecord_ptsz(void *, void *), cuEventRecordWithFlags_ptsz(void *, void *, unsigned);
int cuStreamQuery_ptsz(void *), cuStreamWaitEvent_ptsz(void *, void *, unsigned), cuStreamGetFlags_ptsz(void *, unsigned *);
int cuStreamGetPriority_ptsz(void *, int *), cuStreamGetId_ptsz(void *, uint64_t *), cuStreamGetCtx_ptsz(void *, void **);
int cuStreamGetCtx_v2_ptsz(void *, void **, void **), cuStreamGetDevice_ptsz(void *, int *), cuStreamIsCapturing_ptsz(void *, unsigned *);
int cuStreamBeginCapture_ptsz(void *), cuStreamBeginCapture_v2_ptsz(void *, unsigned), cuStreamEndCapture_ptsz(void *, void **);
int cuStreamGetCaptureInfo_ptsz(void *, unsigned *, uint64_t *);
int cuStreamGetCaptureInfo_v2_ptsz(void *, unsigned *, uint64_t *, void **, void *const **, size_t *);
int cuStreamGetCaptureInfo_v3_ptsz(void *, unsigned *, uint64_t *, void **, void *const **, const void **, size_t *);
int cuStreamUpdateCaptureDependencies_ptsz(void *, void **, size_t, unsigned);
int cuStreamUpdateCaptureDependencies_v2_ptsz(void *, void **, const void *, size_t, unsigned);
int cuGraphLaunch_ptsz(void *, void *), cuGraphUpload_ptsz(void *, void *), cuGraphInstantiateWithParams_ptsz(void **, void *, instantiation *);
int cuLaunchKernel_ptsz(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
int cuLaunchKernelEx_ptsz(const launch_config *, void *, void **, void **);
int cuLaunchCooperativeKernel_ptsz(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **);

/* Entries of older versions, which programs that were compiled long ago have linked. */
int cuDeviceTotalMem(unsigned *, int), cuDevicePrimaryCtxRelease(int), cuDevicePrimaryCtxReset(int), cuDevicePrimaryCtxSetFlags(int, unsigned);
int cuCtxPushCurrent(void *), cuCtxPopCurrent(void **), cuStreamDestroy(void *), cuEventDestroy(void *), cuStreamBeginCapture(void *);
int cuStreamGetCaptureInfo(void *, unsigned *, uint64_t *), cuGraphInstantiate(void **, void *, void **, char *, size_t);

#endif
