/* Libraries that do nothing: the baseline that the shims are timed against. They answer a device list - one device,
 * compute capability 6.1, or 7.5 with NOTHING_CC=75 - and not-supported to everything else that libggml-cuda.so imports.
 *
 * Compiled once per library: -DCUDA, -DCUDART=12, -DCUDART=13, -DCUBLAS. Layouts: cuda_runtime_api.h of CUDA 12.8
 * (cudaDeviceProp of 1032 bytes) and 13.0 (1008 bytes). */
#include <stdlib.h>
#include <string.h>

#define API __attribute__((visibility("default")))
#define NO(name) API int name(void) { return 801; }

static int cc(void) {
    const char *text = getenv("NOTHING_CC");
    return text ? atoi(text) : 61;
}

static int attribute(int *value, int id) {
    *value = id == 75 ? cc() / 10 : id == 76 ? cc() % 10 : id == 16 ? 4 : id == 10 ? 32 : id == 1 ? 1024 : 0;
    return 0;
}

#ifdef CUDA
API int cuInit(unsigned flags) { return flags != 0; }
API int cuDriverGetVersion(int *version) { *version = 13000; return 0; }
API int cuDeviceGetCount(int *count) { *count = 1; return 0; }
API int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return 0; }
API int cuDeviceGetAttribute(int *value, int id, int device) { (void)device; return attribute(value, id); }
API int cuDeviceGetUuid(unsigned char *uuid, int device) { (void)device; memset(uuid, 0xab, 16); return 0; }
API int cuGetErrorString(int code, const char **text) { (void)code; *text = "nothing"; return 0; }
NO(cuMemAddressFree) NO(cuMemAddressReserve) NO(cuMemCreate) NO(cuMemGetAllocationGranularity) NO(cuMemMap)
NO(cuMemRelease) NO(cuMemSetAccess) NO(cuMemUnmap)
#endif

#ifdef CUDART
/* Fields that GGML reads, at their offsets. */
static void put(char *prop, int at, int value) { memcpy(prop + at, &value, sizeof value); }
static int properties(char *prop, int device) {
    int newer = CUDART == 13;
    size_t total = (size_t)8 << 30, shared = 49152;
    if (device) return 101;
    memset(prop, 0, newer ? 1008 : 1032);
    strcpy(prop, "nothing");
    memcpy(prop + 288, &total, sizeof total);
    memcpy(prop + 296, &shared, sizeof shared);
    put(prop, 308, 32);
    put(prop, 320, 1024);
    put(prop, 360, cc() / 10);
    put(prop, 364, cc() % 10);
    put(prop, newer ? 384 : 388, 4);
    put(prop, newer ? 572 : 588, 5);
    memcpy(prop + (newer ? 672 : 696), &shared, sizeof shared);
    return 0;
}
#if CUDART == 12
API int cudaGetDeviceProperties_v2(char *prop, int device) { return properties(prop, device); }
#else
API int cudaGetDeviceProperties(char *prop, int device) { return properties(prop, device); }
#endif
API int cudaGetDeviceCount(int *count) { *count = 1; return 0; }
API int cudaGetDevice(int *device) { *device = 0; return 0; }
API int cudaSetDevice(int device) { return device ? 101 : 0; }
API int cudaDeviceGetAttribute(int *value, int id, int device) { (void)device; return attribute(value, id); }
API int cudaDeviceGetPCIBusId(char *text, int bytes, int device) {
    (void)device;
    strncpy(text, "0000:00:05.0", (size_t)bytes);
    return 0;
}
API int cudaMemGetInfo(size_t *available, size_t *total) {
    *available = (size_t)7 << 30;
    *total = (size_t)8 << 30;
    return 0;
}
API int cudaGetLastError(void) { return 0; }
API int cudaPeekAtLastError(void) { return 0; }
API const char *cudaGetErrorString(int code) { (void)code; return "nothing"; }
API int cudaDeviceCanAccessPeer(int *can, int from, int to) { (void)from; (void)to; *can = 0; return 0; }
API void **__cudaRegisterFatBinary(void *image) { static void *handle; (void)image; return &handle; }
API void __cudaRegisterFatBinaryEnd(void **handle) { (void)handle; }
API void __cudaUnregisterFatBinary(void **handle) { (void)handle; }
API void __cudaRegisterFunction(void) {}
API void __cudaRegisterVar(void) {}
NO(__cudaGetKernel) NO(__cudaLaunchKernel) NO(__cudaPopCallConfiguration) NO(__cudaPushCallConfiguration)
NO(cudaDeviceDisablePeerAccess) NO(cudaDeviceEnablePeerAccess) NO(cudaDeviceReset) NO(cudaDeviceSynchronize)
NO(cudaDriverGetVersion) NO(cudaEventCreateWithFlags) NO(cudaEventDestroy) NO(cudaEventRecord) NO(cudaEventSynchronize)
NO(cudaFree) NO(cudaFreeHost) NO(cudaFuncGetAttributes) NO(cudaFuncSetAttribute) NO(cudaGraphDestroy)
NO(cudaGraphExecDestroy) NO(cudaGraphExecUpdate) NO(cudaGraphInstantiate) NO(cudaGraphLaunch) NO(cudaHostAlloc)
NO(cudaHostGetDevicePointer) NO(cudaHostRegister) NO(cudaHostUnregister) NO(cudaLaunchCooperativeKernel)
NO(cudaLaunchKernel) NO(cudaLaunchKernelExC) NO(cudaMalloc) NO(cudaMallocHost) NO(cudaMallocManaged)
NO(cudaMemcpy2DAsync) NO(cudaMemcpy3DPeerAsync) NO(cudaMemcpyAsync) NO(cudaMemcpyPeerAsync) NO(cudaMemset)
NO(cudaMemsetAsync) NO(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags) NO(cudaSetDeviceFlags)
NO(cudaStreamBeginCapture) NO(cudaStreamCreateWithFlags) NO(cudaStreamDestroy) NO(cudaStreamEndCapture)
NO(cudaStreamIsCapturing) NO(cudaStreamSynchronize) NO(cudaStreamWaitEvent)
#endif

#ifdef CUBLAS
API const char *cublasGetStatusString(int code) { (void)code; return "nothing"; }
NO(cublasCreate_v2) NO(cublasDestroy_v2) NO(cublasGemmBatchedEx) NO(cublasGemmEx) NO(cublasGemmStridedBatchedEx)
NO(cublasSetMathMode) NO(cublasSetStream_v2) NO(cublasSetWorkspace_v2) NO(cublasSgemmBatched)
NO(cublasSgemmStridedBatched) NO(cublasSgemm_v2) NO(cublasStrsmBatched)
#endif
