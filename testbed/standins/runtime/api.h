/* The calls of the runtime API that runtime.c drives, and the structures they take. */
#ifndef VGPU_STANDINS_RUNTIME_API_H
#define VGPU_STANDINS_RUNTIME_API_H

#include <stddef.h>
#include <stdint.h>

#ifndef CUDA
#define CUDA 12
#endif

typedef struct {
    unsigned x, y, z;
} dim3;
typedef struct {
    size_t width, height, depth;
} extent;
typedef struct {
    void *ptr;
    size_t pitch, xsize, ysize;
} pitched;
typedef struct {
    void *src_array;
    size_t src_pos[3];
    pitched src;
    void *dst_array;
    size_t dst_pos[3];
    pitched dst;
    extent extent;
    unsigned kind;
} copy3d;
typedef struct {
    void *src_array;
    size_t src_pos[3];
    pitched src;
    int src_device;
    void *dst_array;
    size_t dst_pos[3];
    pitched dst;
    int dst_device;
    extent extent;
} copy3d_peer;
typedef struct {
    uint64_t flags;
    void *stream, *node;
    unsigned result;
} instantiation;
typedef struct {
    void *dst;
    size_t pitch;
    unsigned value, element;
    size_t width, height;
} fill_node;
typedef struct {
    void *func;
    dim3 grid, block;
    unsigned shared;
    void **params, **extra;
} kernel_node;
typedef struct {
    unsigned type;
    int device;
    void *device_pointer, *host_pointer;
    long reserved[8]; /* CUDA 13 only */
} pointer_attributes;
typedef struct {
    size_t shared, constant, local;
    int max_threads, registers, ptx, binary, cache, max_dynamic, rest[24];
} function_attributes;
typedef struct {
    dim3 grid, block;
    size_t shared;
    void *stream, *attributes;
    unsigned count;
} launch_config;

enum { H2H, H2D, D2H, D2D, ANY };

typedef struct {
    unsigned type, handles;
    unsigned location, id;
    void *security;
    size_t most;
    unsigned char rest[56];
} pool_properties;

int cudaRuntimeGetVersion(int *), cudaDriverGetVersion(int *);
int cudaGetLastError(void), cudaPeekAtLastError(void);
const char *cudaGetErrorName(int), *cudaGetErrorString(int);
int cudaGetDeviceCount(int *), cudaGetDevice(int *), cudaSetDevice(int), cudaInitDevice(int, unsigned, unsigned);
int cudaSetValidDevices(int *, int), cudaChooseDevice(int *, const void *);
int cudaGetDeviceProperties(void *, int);
#if CUDA == 12
int cudaGetDeviceProperties_v2(void *, int);
int cudaThreadSynchronize(void), cudaThreadExit(void), cudaThreadGetLimit(size_t *, unsigned);
int cudaEventElapsedTime_v2(float *, void *, void *);
#endif
int cudaDeviceGetAttribute(int *, int, int), cudaDeviceGetPCIBusId(char *, int, int);
int cudaDeviceGetByPCIBusId(int *, const char *), cudaDeviceSynchronize(void), cudaDeviceReset(void);
int cudaSetDeviceFlags(unsigned), cudaGetDeviceFlags(unsigned *);
int cudaDeviceGetLimit(size_t *, unsigned), cudaDeviceSetLimit(unsigned, size_t);
int cudaDeviceGetCacheConfig(unsigned *), cudaDeviceSetCacheConfig(unsigned);
int cudaDeviceGetStreamPriorityRange(int *, int *);
int cudaDeviceCanAccessPeer(int *, int, int), cudaDeviceEnablePeerAccess(int, unsigned);
int cudaDeviceDisablePeerAccess(int), cudaDeviceGetP2PAttribute(int *, unsigned, int, int);
int cudaMalloc(void **, size_t), cudaFree(void *), cudaMemGetInfo(size_t *, size_t *);
int cudaMallocPitch(void **, size_t *, size_t, size_t), cudaMalloc3D(pitched *, extent);
int cudaMallocManaged(void **, size_t, unsigned), cudaMallocAsync(void **, size_t, void *), cudaFreeAsync(void *, void *);
int cudaDeviceGetDefaultMemPool(void **, int), cudaDeviceGetMemPool(void **, int), cudaDeviceSetMemPool(int, void *);
int cudaMemPoolCreate(void **, const pool_properties *), cudaMemPoolDestroy(void *), cudaMemPoolTrimTo(void *, size_t);
int cudaMemPoolSetAttribute(void *, int, void *), cudaMemPoolGetAttribute(void *, int, void *);
int cudaMallocFromPoolAsync(void **, size_t, void *, void *), cudaMallocFromPoolAsync_ptsz(void **, size_t, void *, void *);
int cudaMemPoolSetAccess(void *, const void *, size_t), cudaMemPoolGetAccess(unsigned *, void *, const void *);
int cudaMemGetDefaultMemPool(void **, const void *, int), cudaMemGetMemPool(void **, const void *, int);
int cudaMemSetMemPool(const void *, int, void *);
int cudaLaunchHostFunc_ptsz(void *, void (*)(void *), void *);
int cudaLaunchHostFunc_v2(void *, void (*)(void *), void *, unsigned);
int cudaLaunchHostFunc_v2_ptsz(void *, void (*)(void *), void *, unsigned);
int cudaStreamAddCallback_ptsz(void *, void (*)(void *, int, void *), void *, unsigned);
int cudaGraphClone(void **, void *), cudaCtxResetPersistingL2Cache(void);
int cudaLibraryLoadFromFile(void **, const char *, void *, void *, unsigned, void *, void *, unsigned);
int cudaLaunchHostFunc(void *, void (*)(void *), void *);
int cudaStreamAddCallback(void *, void (*)(void *, int, void *), void *, unsigned);
int cudaMallocHost(void **, size_t), cudaHostAlloc(void **, size_t, unsigned), cudaFreeHost(void *);
int cudaHostRegister(void *, size_t, unsigned), cudaHostUnregister(void *);
int cudaHostGetDevicePointer(void **, void *, unsigned), cudaHostGetFlags(unsigned *, void *);
int cudaMemcpy(void *, const void *, size_t, int), cudaMemcpyAsync(void *, const void *, size_t, int, void *);
int cudaMemcpy_ptds(void *, const void *, size_t, int), cudaMemcpyAsync_ptsz(void *, const void *, size_t, int, void *);
int cudaMemcpy2D(void *, size_t, const void *, size_t, size_t, size_t, int);
int cudaMemcpy2DAsync(void *, size_t, const void *, size_t, size_t, size_t, int, void *);
int cudaMemcpy3D(const copy3d *), cudaMemcpy3DAsync(const copy3d *, void *);
int cudaMemcpyPeer(void *, int, const void *, int, size_t);
int cudaMemcpyPeerAsync(void *, int, const void *, int, size_t, void *);
int cudaMemset(void *, int, size_t), cudaMemsetAsync(void *, int, size_t, void *);
int cudaMemset2D(void *, size_t, int, size_t, size_t), cudaMemset3D(pitched, int, extent);
int cudaMemcpyToSymbol(const void *, const void *, size_t, size_t, int);
int cudaMemcpyFromSymbol(void *, const void *, size_t, size_t, int);
int cudaGetSymbolAddress(void **, const void *), cudaGetSymbolSize(size_t *, const void *);
int cudaPointerGetAttributes(pointer_attributes *, const void *);
int cudaStreamCreate(void **), cudaStreamCreateWithFlags(void **, unsigned);
int cudaStreamCreateWithPriority(void **, unsigned, int), cudaStreamDestroy(void *), cudaStreamSynchronize(void *);
int cudaStreamSynchronize_ptsz(void *), cudaStreamQuery(void *), cudaStreamWaitEvent(void *, void *, unsigned);
int cudaStreamGetFlags(void *, unsigned *), cudaStreamGetPriority(void *, int *), cudaStreamGetId(void *, uint64_t *);
int cudaStreamIsCapturing(void *, unsigned *), cudaStreamBeginCapture(void *, unsigned);
int cudaStreamEndCapture(void *, void **), cudaThreadExchangeStreamCaptureMode(unsigned *);
int cudaEventCreate(void **), cudaEventCreateWithFlags(void **, unsigned), cudaEventDestroy(void *);
int cudaEventRecord(void *, void *), cudaEventRecordWithFlags(void *, void *, unsigned), cudaEventSynchronize(void *);
int cudaEventQuery(void *), cudaEventElapsedTime(float *, void *, void *);
int cudaGraphCreate(void **, unsigned), cudaGraphDestroy(void *), cudaGraphInstantiate(void **, void *, uint64_t);
int cudaGraphInstantiateWithFlags(void **, void *, uint64_t), cudaGraphExecDestroy(void *);
int cudaGraphExecUpdate(void *, void *, void *), cudaGraphLaunch(void *, void *), cudaGraphUpload(void *, void *);
int cudaGraphGetNodes(void *, void **, size_t *), cudaGraphNodeGetType(void *, unsigned *);
int cudaFuncGetAttributes(function_attributes *, const void *), cudaFuncSetAttribute(const void *, unsigned, int);
int cudaFuncSetCacheConfig(const void *, unsigned), cudaFuncGetName(const char **, const void *);
int cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *, const void *, int, size_t);
int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *, const void *, int, size_t, unsigned);
int cudaGetFuncBySymbol(void **, const void *), cudaGetKernel(void **, const void *);
int cudaLaunchKernel(const void *, dim3, dim3, void **, size_t, void *);
int cudaLaunchKernel_ptsz(const void *, dim3, dim3, void **, size_t, void *);
int cudaLaunchCooperativeKernel(const void *, dim3, dim3, void **, size_t, void *);
int cudaLaunchKernelExC(const launch_config *, const void *, void **);
int __cudaGetKernel(void **, const void *), __cudaLaunchKernel(void *, dim3, dim3, void **, size_t, void *);
unsigned __cudaPushCallConfiguration(dim3, dim3, size_t, void *);
int __cudaPopCallConfiguration(dim3 *, dim3 *, size_t *, void *);
void **__cudaRegisterFatBinary(void *);
void __cudaRegisterFatBinaryEnd(void **), __cudaUnregisterFatBinary(void **);
void __cudaRegisterFunction(void **, const char *, char *, const char *, int, void *, void *, void *, void *, int *);
void __cudaRegisterVar(void **, char *, char *, const char *, int, size_t, int, int);
int cudaGetDriverEntryPoint(const char *, void **, uint64_t, unsigned *);
int cudaGetDriverEntryPointByVersion(const char *, void **, unsigned, uint64_t, unsigned *);
int cudaLibraryLoadData(void **, const void *, void *, void *, unsigned, void *, void *, unsigned);
int cudaLibraryUnload(void *), cudaLibraryGetKernel(void **, void *, const char *);
int cudaLibraryGetKernelCount(unsigned *, void *), cudaLibraryEnumerateKernels(void **, unsigned, void *);
int cudaLibraryGetGlobal(void **, size_t *, void *, const char *);
int cudaFuncGetParamInfo(const void *, size_t, size_t *, size_t *), cudaKernelSetAttributeForDevice(void *, unsigned, int, int);
int cudaDeviceGetSharedMemConfig(unsigned *), cudaDeviceSetSharedMemConfig(unsigned);
int cudaProfilerStart(void), cudaProfilerStop(void);
int cudaMemset2DAsync(void *, size_t, int, size_t, size_t, void *), cudaMemset3DAsync(pitched, int, extent, void *);
int cudaMemcpy3DPeer(const copy3d_peer *), cudaMemcpy3DPeerAsync(const copy3d_peer *, void *);
int cudaMemcpyToSymbolAsync(const void *, const void *, size_t, size_t, int, void *);
int cudaMemcpyFromSymbolAsync(void *, const void *, size_t, size_t, int, void *);
int cudaGraphGetRootNodes(void *, void **, size_t *), cudaGraphExecGetFlags(void *, uint64_t *);
int cudaGraphInstantiateWithParams(void **, void *, instantiation *);
int cudaGraphAddEmptyNode(void **, void *, void *const *, size_t);
int cudaGraphAddMemsetNode(void **, void *, void *const *, size_t, const fill_node *);
int cudaGraphAddKernelNode(void **, void *, void *const *, size_t, const kernel_node *);
int cudaGraphKernelNodeGetParams(void *, kernel_node *), cudaGraphKernelNodeSetParams(void *, const kernel_node *);
int cudaGraphExecKernelNodeSetParams(void *, void *, const kernel_node *);
int cudaStreamGetDevice(void *, int *);
#if CUDA == 12
int cudaStreamGetCaptureInfo(void *, unsigned *, uint64_t *), cudaStreamGetCaptureInfo_ptsz(void *, unsigned *, uint64_t *);
int cudaStreamGetCaptureInfo_v2(void *, unsigned *, uint64_t *, void **, void *const **, size_t *);
int cudaStreamGetCaptureInfo_v2_ptsz(void *, unsigned *, uint64_t *, void **, void *const **, size_t *);
int cudaStreamGetCaptureInfo_v3(void *, unsigned *, uint64_t *, void **, void *const **, const void **, size_t *);
int cudaStreamGetCaptureInfo_v3_ptsz(void *, unsigned *, uint64_t *, void **, void *const **, const void **, size_t *);
int cudaThreadSetLimit(unsigned, size_t), cudaThreadGetCacheConfig(unsigned *), cudaThreadSetCacheConfig(unsigned);
#else
int cudaStreamGetCaptureInfo(void *, unsigned *, uint64_t *, void **, void *const **, const void **, size_t *);
int cudaStreamGetCaptureInfo_ptsz(void *, unsigned *, uint64_t *, void **, void *const **, const void **, size_t *);
#endif

/* Programs compiled with the per-thread default stream call these: stream 0 is the thread's own. */
int cudaMemset_ptds(void *, int, size_t), cudaMemset2D_ptds(void *, size_t, int, size_t, size_t), cudaMemset3D_ptds(pitched, int, extent);
int cudaMemsetAsync_ptsz(void *, int, size_t, void *), cudaMemset2DAsync_ptsz(void *, size_t, int, size_t, size_t, void *);
int cudaMemset3DAsync_ptsz(pitched, int, extent, void *);
int cudaMemcpy2D_ptds(void *, size_t, const void *, size_t, size_t, size_t, int);
int cudaMemcpy2DAsync_ptsz(void *, size_t, const void *, size_t, size_t, size_t, int, void *);
int cudaMemcpy3D_ptds(const copy3d *), cudaMemcpy3DAsync_ptsz(const copy3d *, void *);
int cudaMemcpy3DPeer_ptds(const copy3d_peer *), cudaMemcpy3DPeerAsync_ptsz(const copy3d_peer *, void *);
int cudaMemcpyToSymbol_ptds(const void *, const void *, size_t, size_t, int);
int cudaMemcpyFromSymbol_ptds(void *, const void *, size_t, size_t, int);
int cudaMemcpyToSymbolAsync_ptsz(const void *, const void *, size_t, size_t, int, void *);
int cudaMemcpyFromSymbolAsync_ptsz(void *, const void *, size_t, size_t, int, void *);
int cudaMallocAsync_ptsz(void **, size_t, void *), cudaFreeAsync_ptsz(void *, void *);
int cudaStreamQuery_ptsz(void *), cudaStreamWaitEvent_ptsz(void *, void *, unsigned), cudaStreamGetFlags_ptsz(void *, unsigned *);
int cudaStreamGetPriority_ptsz(void *, int *), cudaStreamGetId_ptsz(void *, uint64_t *), cudaStreamGetDevice_ptsz(void *, int *);
int cudaStreamIsCapturing_ptsz(void *, unsigned *), cudaStreamBeginCapture_ptsz(void *, unsigned), cudaStreamEndCapture_ptsz(void *, void **);
int cudaEventRecord_ptsz(void *, void *), cudaEventRecordWithFlags_ptsz(void *, void *, unsigned);
int cudaGraphLaunch_ptsz(void *, void *), cudaGraphUpload_ptsz(void *, void *);
int __cudaLaunchKernel_ptsz(void *, dim3, dim3, void **, size_t, void *);
int cudaLaunchCooperativeKernel_ptsz(const void *, dim3, dim3, void **, size_t, void *);
int cudaLaunchKernelExC_ptsz(const launch_config *, const void *, void **);
int cudaGetDriverEntryPoint_ptsz(const char *, void **, uint64_t, unsigned *);
int cudaGetDriverEntryPointByVersion_ptsz(const char *, void **, unsigned, uint64_t, unsigned *);

#endif
