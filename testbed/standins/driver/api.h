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
int cuMemSetAccess(address, size_t, const access_rights *, size_t);
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

#endif
