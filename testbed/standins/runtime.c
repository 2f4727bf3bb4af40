/* Drives each implemented call of the runtime API through the real loader: return codes, bad arguments, calls before
 * the first that initialises, in a forked child, after exit began. One line a check (TAP); exit code 0 when all held.
 *
 * Usage: runtime [data] [graphs] [kernels]   what the device is able to do: keep what is copied to it, run graphs, run code
 * cc -DCUDA=12 -o runtime runtime.c libcudart.so.12 libcuda.so.1 -lpthread    (or 13) */
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "runtime_api.h"

#define BOGUS ((void *)0x123450)
#define PER_THREAD ((void *)2)

static int data, graphs_run, kernels, counted;

/* Runs `child` in a forked process and answers its exit code, or minus the signal that ended it. */
static int forked(int (*child)(void))
{
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0)
        exit(child()); /* with exit handlers: they must not touch what is the parent's */
    int status = 0;
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        return -1000;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static int is_child; /* exit handlers of a forked child check nothing */

static void at_exit(void)
{
    if (is_child)
        return;
    int count = -1;
    void *memory = NULL;
    check("after exit began: cudaGetDeviceCount", cudaGetDeviceCount(&count), 4);
    check("after exit began: the count is untouched", count, -1);
    check("after exit began: cudaGetDevice", cudaGetDevice(&count), 4);
    check("after exit began: cudaMalloc", cudaMalloc(&memory, 16), 4);
    check("after exit began: cudaFree", cudaFree(NULL), 4);
    check("after exit began: cudaDeviceSynchronize", cudaDeviceSynchronize(), 4);
    check("after exit began: cudaStreamSynchronize", cudaStreamSynchronize(NULL), 4);
    check("after exit began: cudaGetLastError", cudaGetLastError(), 4);
    check_text("after exit began: cudaGetErrorString", cudaGetErrorString(4), "driver shutting down");
    if (finish() != 0)
        _exit(1);
}

static void versions(void)
{
    int version = -1;
    check("cudaRuntimeGetVersion", cudaRuntimeGetVersion(&version), 0);
    check("runtime version's major", version / 1000, CUDA);
    check("cudaRuntimeGetVersion null", cudaRuntimeGetVersion(NULL), 1);
    check("cudaDriverGetVersion null", cudaDriverGetVersion(NULL), 1);
    check("cudaDriverGetVersion", cudaDriverGetVersion(&version), 0);
    check_true("the driver's version is sufficient", version >= CUDA * 1000);
    check_text("cudaGetErrorName", cudaGetErrorName(100), "cudaErrorNoDevice");
    check_text("cudaGetErrorString", cudaGetErrorString(100), "no CUDA-capable device is detected");
    check_text("cudaGetErrorName of none", cudaGetErrorName(11), "unrecognized error code");
    check_text("cudaGetErrorString of none", cudaGetErrorString(-1), "unrecognized error code");
}

static void last_error(void)
{
    while (cudaGetLastError()) {
    }
    check("an error", cudaSetDevice(9999), 101);
    check("cudaPeekAtLastError", cudaPeekAtLastError(), 101);
    check("cudaGetLastError", cudaGetLastError(), 101);
    check("cudaGetLastError again", cudaGetLastError(), 0);
}

static int word(const char *properties, size_t offset)
{
    int value;
    memcpy(&value, properties + offset, sizeof value);
    return value;
}

static void devices(void)
{
    check("cudaGetDeviceCount null", cudaGetDeviceCount(NULL), 1);
    check("cudaGetDeviceCount", cudaGetDeviceCount(&counted), 0);
    check_true("there is a device", counted >= 1);
    int ordinal = -1, value = -1;
    check("cudaGetDevice null", cudaGetDevice(NULL), 1);
    check("cudaGetDevice", cudaGetDevice(&ordinal), 0);
    check("device 0 to begin with", ordinal, 0);
    check("cudaSetDevice past the end", cudaSetDevice(counted), 101);
    check("cudaSetDevice negative", cudaSetDevice(-1), 101);
    check("cudaSetDevice", cudaSetDevice(0), 0);
    check("cudaInitDevice", cudaInitDevice(0, 0, 0), 0);
    check("cudaInitDevice past the end", cudaInitDevice(counted, 0, 0), 101);
    check("cudaInitDevice bad flags", cudaInitDevice(0, 0, 2), 1);
    check("cudaSetValidDevices", cudaSetValidDevices(&(int){0}, 1), 0);
    check("cudaSetValidDevices past the end", cudaSetValidDevices(&(int){counted}, 1), 101);
    check("cudaSetValidDevices null", cudaSetValidDevices(NULL, 1), 1);
    check("cudaSetValidDevices none", cudaSetValidDevices(NULL, 0), 0);

    check("cudaDeviceGetAttribute null", cudaDeviceGetAttribute(NULL, 75, 0), 1);
    check("cudaDeviceGetAttribute unknown", cudaDeviceGetAttribute(&value, 9999, 0), 1);
    check("cudaDeviceGetAttribute 0", cudaDeviceGetAttribute(&value, 0, 0), 1);
    check("cudaDeviceGetAttribute of the driver alone", cudaDeviceGetAttribute(&value, 102, 0), 1);
    check("cudaDeviceGetAttribute no device", cudaDeviceGetAttribute(&value, 75, counted), 101);

    /* The structure of the plain name is CUDA 11's in CUDA 12, and its own in CUDA 13: what lies behind is not touched. */
    const size_t plain = CUDA == 12 ? 728 : 1008;
    static char properties[1100], beyond[64];
    memset(properties, 0x5a, sizeof properties);
    memset(beyond, 0x5a, sizeof beyond);
    check("cudaGetDeviceProperties", cudaGetDeviceProperties(properties, 0), 0);
    check("cudaGetDeviceProperties writes no more than its structure", memcmp(properties + plain, beyond, 64), 0);
    check_true("the name ends", memchr(properties, 0, 256) != NULL);
    check_true("the name is not empty", properties[0] != 0);
    int major = -1, minor = -1;
    check("compute capability, major", cudaDeviceGetAttribute(&major, 75, 0), 0);
    check("compute capability, minor", cudaDeviceGetAttribute(&minor, 76, 0), 0);
    check("properties: major", word(properties, 360), major);
    check("properties: minor", word(properties, 364), minor);
    check("cudaDeviceGetAttribute multiprocessors", cudaDeviceGetAttribute(&value, 16, 0), 0);
    check("properties: multiProcessorCount", word(properties, CUDA == 12 ? 388 : 384), value);
    check("properties: warpSize", word(properties, 308), 32);
    check("cudaDeviceGetAttribute bus", cudaDeviceGetAttribute(&value, 33, 0), 0);
    check("properties: pciBusID", word(properties, CUDA == 12 ? 584 : 568), value);
    check("properties: integrated", word(properties, CUDA == 12 ? 396 : 388), 0);
    size_t free_bytes = 0, total = 0, stated;
    memcpy(&stated, properties + 288, sizeof stated);
    check("cudaMemGetInfo", cudaMemGetInfo(&free_bytes, &total), 0);
    check("properties: totalGlobalMem", (long long)stated, (long long)total);
    check_true("free memory is no more than all", free_bytes <= total && free_bytes > 0);
    check("cudaMemGetInfo null", cudaMemGetInfo(NULL, &total), 1);
    check("cudaGetDeviceProperties null", cudaGetDeviceProperties(NULL, 0), 1);
    check("cudaGetDeviceProperties no device", cudaGetDeviceProperties(properties, counted), 101);
    check("cudaChooseDevice", cudaChooseDevice(&ordinal, properties), 0);
    check("cudaChooseDevice finds it", ordinal, 0);
    check("cudaChooseDevice null", cudaChooseDevice(NULL, properties), 1);
#if CUDA == 12
    static char newer[1100];
    memset(newer, 0x5a, sizeof newer);
    check("cudaGetDeviceProperties_v2", cudaGetDeviceProperties_v2(newer, 0), 0);
    check("cudaGetDeviceProperties_v2 writes no more than its structure", memcmp(newer + 1032, beyond, 64), 0);
    check("both structures begin alike", memcmp(newer, properties, plain), 0);
    check("cudaDeviceGetAttribute pools", cudaDeviceGetAttribute(&value, 115, 0), 0);
    check("properties: memoryPoolsSupported", word(newer, 744), value);
#endif

    char bus[32], cut[16];
    memset(cut, 0x5a, sizeof cut);
    check("cudaDeviceGetPCIBusId", cudaDeviceGetPCIBusId(bus, sizeof bus, 0), 0);
    check("a PCI address has 12 letters", (long long)strlen(bus), 12);
    check_true("a PCI address is written so", bus[4] == ':' && bus[7] == ':' && bus[10] == '.');
    cudaDeviceGetPCIBusId(cut, 4, 0);
    check("cudaDeviceGetPCIBusId writes no more than it may", cut[4], 0x5a);
    check("cudaDeviceGetPCIBusId null", cudaDeviceGetPCIBusId(NULL, 32, 0), 1);
    check("cudaDeviceGetPCIBusId no device", cudaDeviceGetPCIBusId(bus, sizeof bus, counted), 101);
    ordinal = -1;
    check("cudaDeviceGetByPCIBusId", cudaDeviceGetByPCIBusId(&ordinal, bus), 0);
    check("cudaDeviceGetByPCIBusId finds it", ordinal, 0);
    check_either("cudaDeviceGetByPCIBusId of none", cudaDeviceGetByPCIBusId(&ordinal, "7fff:7f:1f.0"), 101, 1);
    check("cudaDeviceGetByPCIBusId null", cudaDeviceGetByPCIBusId(&ordinal, NULL), 1);

    unsigned flags = 0;
    check("cudaSetDeviceFlags", cudaSetDeviceFlags(4), 0);
    check("cudaGetDeviceFlags", cudaGetDeviceFlags(&flags), 0);
    check("the flags are those that were set, and mapped memory", flags, 4 | 8);
    check("cudaSetDeviceFlags unknown", cudaSetDeviceFlags(0x1000), 1);
    check("cudaSetDeviceFlags two schedules", cudaSetDeviceFlags(3), 1);
    check("cudaSetDeviceFlags automatic", cudaSetDeviceFlags(0), 0);
    check("cudaGetDeviceFlags null", cudaGetDeviceFlags(NULL), 1);
    size_t limit = 0;
    check("cudaDeviceGetLimit", cudaDeviceGetLimit(&limit, 0), 0);
    check_true("a stack has a size", limit > 0);
    check("cudaDeviceSetLimit", cudaDeviceSetLimit(0, limit / 2), 0);
    size_t stack = 0;
    check("cudaDeviceGetLimit after", cudaDeviceGetLimit(&stack, 0), 0);
    check_true("the limit is no less than what was set", stack >= limit / 2);
    check("cudaDeviceGetLimit unknown", cudaDeviceGetLimit(&limit, 99), 215);
    check("cudaDeviceGetLimit null", cudaDeviceGetLimit(NULL, 0), 1);
    unsigned config = 9;
    check("cudaDeviceSetCacheConfig", cudaDeviceSetCacheConfig(2), 0);
    check("cudaDeviceGetCacheConfig", cudaDeviceGetCacheConfig(&config), 0);
    check("the cache preference is what was set", config, 2);
    int least = 99, greatest = 99;
    check("cudaDeviceGetStreamPriorityRange", cudaDeviceGetStreamPriorityRange(&least, &greatest), 0);
    check_true("lower is more urgent", greatest <= least && least == 0);
#if CUDA == 12
    check("cudaThreadSynchronize", cudaThreadSynchronize(), 0);
    check("cudaThreadGetLimit", cudaThreadGetLimit(&limit, 0), 0);
#endif
    check("cudaDeviceCanAccessPeer itself", cudaDeviceCanAccessPeer(&value, 0, 0), 0);
    check("a device is no peer of itself", value, 0);
    check("cudaDeviceCanAccessPeer no device", cudaDeviceCanAccessPeer(&value, 0, counted), 101);
    check("cudaDeviceCanAccessPeer null", cudaDeviceCanAccessPeer(NULL, 0, 0), 1);
    check("cudaDeviceEnablePeerAccess itself", cudaDeviceEnablePeerAccess(0, 0), 101);
    check("cudaDeviceEnablePeerAccess no device", cudaDeviceEnablePeerAccess(counted, 0), 101);
    check("cudaDeviceDisablePeerAccess not enabled", cudaDeviceDisablePeerAccess(0), 705);
    check("cudaDeviceGetP2PAttribute itself", cudaDeviceGetP2PAttribute(&value, 2, 0, 0), 101);
    check("cudaDeviceSynchronize", cudaDeviceSynchronize(), 0);
}

static void fill(unsigned char *bytes, size_t count, unsigned seed)
{
    for (size_t i = 0; i < count; i++)
        bytes[i] = (unsigned char)((seed = seed * 1664525 + 1013904223) >> 24);
}

/* Whether what came back is what went: only where the device keeps data. */
static void same(const char *name, const void *a, const void *b, size_t count)
{
    if (data)
        check(name, memcmp(a, b, count), 0);
    else
        skip(name, "the device keeps no data");
}

static void memory(void)
{
    void *p = BOGUS, *q = NULL;
    check("cudaMalloc null", cudaMalloc(NULL, 16), 1);
    check("cudaMalloc nothing", cudaMalloc(&p, 0), 0);
    check_true("nothing is null", p == NULL);
    check("cudaMalloc too much", cudaMalloc(&p, (size_t)1 << 60), 2);
    check("cudaMalloc", cudaMalloc(&p, 1 << 20), 0);
    check("memory is aligned", (long long)((uintptr_t)p % 256), 0);
    check("cudaMalloc another", cudaMalloc(&q, 1000), 0);
    check("cudaFree null", cudaFree(NULL), 0);
    check("cudaFree", cudaFree(q), 0);
    check("cudaFree again", cudaFree(q), 1);
    check("cudaFree of the middle", cudaFree((char *)p + 512), 1);
    size_t before = 0, after = 0, total;
    cudaMemGetInfo(&before, &total);
    check("cudaMalloc 32 MiB", cudaMalloc(&q, 32 << 20), 0);
    cudaMemGetInfo(&after, &total);
    if (data)
        check_true("allocated memory is not free", before - after >= 32u << 20);
    cudaFree(q);
    cudaMemGetInfo(&after, &total);
    if (data)
        check("freed memory is free", (long long)after, (long long)before);

    size_t pitch = 0;
    check("cudaMallocPitch", cudaMallocPitch(&q, &pitch, 100, 7), 0);
    check_true("a pitch is no less than the width", pitch >= 100 && pitch % 16 == 0);
    check("cudaMallocPitch null", cudaMallocPitch(&q, NULL, 100, 7), 1);
    static unsigned char rows[7][100], back[7][100];
    fill(&rows[0][0], sizeof rows, 3);
    check("cudaMemcpy2D in", cudaMemcpy2D(q, pitch, rows, 100, 100, 7, H2D), 0);
    check("cudaMemcpy2D out", cudaMemcpy2D(back, 100, q, pitch, 100, 7, D2H), 0);
    same("rows come back", rows, back, sizeof rows);
    memset(back, 0, sizeof back);
    check("cudaMemcpy2DAsync", cudaMemcpy2DAsync(back, 100, q, pitch, 100, 7, D2H, NULL), 0);
    check("its synchronize", cudaStreamSynchronize(NULL), 0);
    same("rows come back in order of a stream", rows, back, sizeof rows);
    check("cudaMemcpy2D bad pitch", cudaMemcpy2D(q, 50, rows, 100, 100, 7, H2D), 12);
    check("cudaMemcpy2D bad kind", cudaMemcpy2D(q, pitch, rows, 100, 100, 7, 9), 21);
    check("cudaMemcpy2D nothing", cudaMemcpy2D(q, pitch, rows, 100, 0, 7, H2D), 0);
    check("cudaMemcpy2D null", cudaMemcpy2D(NULL, pitch, rows, 100, 100, 7, H2D), 1);
    check("cudaMemset2D", cudaMemset2D(q, pitch, 0x41, 50, 7), 0);
    for (int row = 0; row < 7; row++)
        memset(rows[row], 0x41, 50);
    cudaMemcpy2D(back, 100, q, pitch, 100, 7, D2H);
    same("half of each row is filled", rows, back, sizeof rows);
    cudaFree(q);

    pitched box;
    const extent size = {24, 5, 3};
    check("cudaMalloc3D", cudaMalloc3D(&box, size), 0);
    check("cudaMalloc3D rows", (long long)box.ysize, 5);
    static unsigned char slices[3][5][24], slices_back[3][5][24];
    fill(&slices[0][0][0], sizeof slices, 4);
    copy3d copy = {.src = {slices, 24, 24, 5}, .dst = box, .extent = size, .kind = H2D};
    check("cudaMemcpy3D in", cudaMemcpy3D(&copy), 0);
    copy3d out = {.src = box, .dst = {slices_back, 24, 24, 5}, .extent = size, .kind = D2H};
    check("cudaMemcpy3D out", cudaMemcpy3D(&out), 0);
    same("slices come back", slices, slices_back, sizeof slices);
    check("cudaMemset3D", cudaMemset3D(box, 7, size), 0);
    check("cudaMemcpy3DAsync", cudaMemcpy3DAsync(&out, NULL), 0);
    cudaStreamSynchronize(NULL);
    memset(slices, 7, sizeof slices);
    same("slices are filled", slices, slices_back, sizeof slices);
    out.src_array = BOGUS;
    check("cudaMemcpy3D of an array", cudaMemcpy3D(&out), 801);
    check("cudaMemcpy3D null", cudaMemcpy3D(NULL), 1);
    cudaFree(box.ptr);

    static unsigned char in[100000], got[100000];
    fill(in, sizeof in, 1);
    check("cudaMemcpy in", cudaMemcpy(p, in, sizeof in, H2D), 0);
    check("cudaMemcpy out", cudaMemcpy(got, p, sizeof in, D2H), 0);
    same("bytes come back", in, got, sizeof in);
    check("cudaMemcpy on the device", cudaMemcpy((char *)p + 500000, p, sizeof in, D2D), 0);
    memset(got, 0, sizeof got);
    check("cudaMemcpy any", cudaMemcpy(got, (char *)p + 500000, sizeof in, ANY), 0);
    same("bytes come back from where they were copied", in, got, sizeof in);
    memset(got, 0, sizeof got);
    check("cudaMemcpy between host memory", cudaMemcpy(got, in, sizeof in, H2H), 0);
    check("host bytes are copied", memcmp(got, in, sizeof in), 0);
    check("cudaMemcpy nothing", cudaMemcpy(p, in, 0, H2D), 0);
    check("cudaMemcpy bad kind", cudaMemcpy(p, in, 4, 5), 21);
    check("cudaMemcpy null", cudaMemcpy(NULL, in, 4, H2D), 1);
    check("cudaMemcpy from null", cudaMemcpy(p, NULL, 4, H2D), 1);
    fill(in, sizeof in, 2);
    check("cudaMemcpy_ptds", cudaMemcpy_ptds(p, in, 1000, H2D), 0);
    check("cudaMemcpyAsync_ptsz", cudaMemcpyAsync_ptsz(got, p, 1000, D2H, NULL), 0);
    check("cudaStreamSynchronize_ptsz", cudaStreamSynchronize_ptsz(NULL), 0);
    same("bytes come back by the per-thread stream", in, got, 1000);
    check("cudaMemcpyAsync in", cudaMemcpyAsync(p, in, sizeof in, H2D, PER_THREAD), 0);
    check("cudaMemcpyAsync out", cudaMemcpyAsync(got, p, sizeof in, D2H, PER_THREAD), 0);
    check("cudaMemcpyAsync bad stream", cudaMemcpyAsync(p, in, 4, H2D, BOGUS), 400);
    check("cudaStreamSynchronize per thread", cudaStreamSynchronize(PER_THREAD), 0);
    same("bytes come back in order of a stream", in, got, sizeof in);
    check("cudaMemset", cudaMemset(p, 0x1ab, 1000), 0);
    check("cudaMemsetAsync", cudaMemsetAsync((char *)p + 1000, 0, 1000, NULL), 0);
    cudaMemcpy(got, p, 2000, D2H);
    memset(in, 0xab, 1000);
    memset(in + 1000, 0, 1000);
    same("bytes are filled", in, got, 2000);
    check("cudaMemset nothing", cudaMemset(p, 0, 0), 0);
    check("cudaMemset null", cudaMemset(NULL, 0, 4), 1);
    check("cudaMemsetAsync bad stream", cudaMemsetAsync(p, 0, 4, BOGUS), 400);
    check("cudaMemcpyPeer", cudaMemcpyPeer((char *)p + 4096, 0, p, 0, 100), 0);
    check("cudaMemcpyPeerAsync", cudaMemcpyPeerAsync((char *)p + 4096, 0, p, 0, 100, NULL), 0);
    check("cudaMemcpyPeer no device", cudaMemcpyPeer(p, 0, p, counted, 4), 101);

    q = NULL;
    int managed = 0;
    cudaDeviceGetAttribute(&managed, 83, 0);
    int status = cudaMallocManaged(&q, 4096, 1);
    check("cudaMallocManaged", status, managed ? 0 : 801);
    if (!status)
        cudaFree(q);
    check("cudaMallocManaged nothing", cudaMallocManaged(&q, 0, 1), 1);
    status = cudaMallocAsync(&q, 4096, NULL);
    check("cudaMallocAsync", status, 0);
    if (!status)
        check("cudaFreeAsync", cudaFreeAsync(q, NULL), 0);
    check("cudaMallocAsync null", cudaMallocAsync(NULL, 16, NULL), 1);
    check("cudaMallocAsync nothing", cudaMallocAsync(&q, 0, NULL), 0);
    check("cudaDeviceSynchronize after", cudaDeviceSynchronize(), 0);
    cudaFree(p);
}

static void host_memory(void)
{
    void *p = NULL, *q = NULL, *device = NULL;
    unsigned flags = 99;
    check("cudaMallocHost null", cudaMallocHost(NULL, 16), 1);
    check("cudaMallocHost nothing", cudaMallocHost(&p, 0), 0);
    check("cudaMallocHost", cudaMallocHost(&p, 1 << 20), 0);
    memset(p, 1, 1 << 20);
    check("cudaHostAlloc", cudaHostAlloc(&q, 4096, 2), 0);
    memset(q, 2, 4096);
    check("cudaHostAlloc bad flags", cudaHostAlloc(&q, 4096, 0x100), 1);
    check("cudaHostGetFlags", cudaHostGetFlags(&flags, q), 0);
    check_true("mapped memory says so", (flags & 2) != 0);
    check("cudaHostGetFlags null", cudaHostGetFlags(NULL, q), 1);
    int mapped = 0;
    cudaDeviceGetAttribute(&mapped, 19, 0);
    int status = cudaHostGetDevicePointer(&device, q, 0);
    if (mapped)
        check("cudaHostGetDevicePointer", status, 0);
    else
        check_either("cudaHostGetDevicePointer where none is mapped", status, 801, 1);
    check("cudaHostGetDevicePointer null", cudaHostGetDevicePointer(NULL, q, 0), 1);
    static char plain[8192];
    check_true("cudaHostGetDevicePointer of plain memory", cudaHostGetDevicePointer(&device, plain, 0) != 0);

    void *memory = NULL;
    static unsigned char got[70000];
    check("cudaMalloc", cudaMalloc(&memory, sizeof got), 0);
    fill(p, sizeof got, 5);
    check("cudaMemcpyAsync from pinned memory", cudaMemcpyAsync(memory, p, sizeof got, H2D, NULL), 0);
    check("cudaMemcpy back", cudaMemcpy(got, memory, sizeof got, D2H), 0);
    same("pinned bytes come back", p, got, sizeof got);
    memset(p, 0, sizeof got);
    check("cudaMemcpyAsync to pinned memory", cudaMemcpyAsync(p, memory, sizeof got, D2H, NULL), 0);
    check("cudaStreamSynchronize", cudaStreamSynchronize(NULL), 0);
    same("bytes come back to pinned memory", p, got, sizeof got);
    cudaFree(memory);

    pointer_attributes attributes;
    memset(&attributes, 0x5a, sizeof attributes);
    check("cudaPointerGetAttributes of plain memory", cudaPointerGetAttributes(&attributes, plain), 0);
    check("plain memory is unregistered", attributes.type, 0);
    check("plain memory has no device", attributes.device, -2);
    check("cudaPointerGetAttributes writes no more than its structure", attributes.reserved[0],
          CUDA == 12 ? 0x5a5a5a5a5a5a5a5aL : 0);
    check("cudaPointerGetAttributes of pinned memory", cudaPointerGetAttributes(&attributes, (char *)p + 100), 0);
    check("pinned memory is the host's", attributes.type, 1);
    check_true("pinned memory's host pointer", attributes.host_pointer == (char *)p + 100);
    check("cudaMalloc", cudaMalloc(&memory, 4096), 0);
    check("cudaPointerGetAttributes of device memory", cudaPointerGetAttributes(&attributes, (char *)memory + 8), 0);
    check("device memory is the device's", attributes.type, 2);
    check("device memory's device", attributes.device, 0);
    check_true("device memory's pointer", attributes.device_pointer == (char *)memory + 8);
    check("cudaPointerGetAttributes null", cudaPointerGetAttributes(NULL, memory), 1);
    cudaFree(memory);

    check("cudaFreeHost null", cudaFreeHost(NULL), 0);
    check("cudaFreeHost", cudaFreeHost(p), 0);
    check("cudaFreeHost again", cudaFreeHost(p), 1);
    check("cudaFreeHost of plain memory", cudaFreeHost(plain), 1);
    check("cudaFreeHost the other", cudaFreeHost(q), 0);

    int registers = 0;
    cudaDeviceGetAttribute(&registers, 99, 0);
    void *pages = aligned_alloc(4096, 8192);
    status = cudaHostRegister(pages, 8192, 0);
    check("cudaHostRegister", status, registers ? 0 : 801);
    if (status == 0) {
        check("cudaHostRegister again", cudaHostRegister(pages, 8192, 0), 712);
        check("cudaHostUnregister", cudaHostUnregister(pages), 0);
    }
    check("cudaHostUnregister of none", cudaHostUnregister(pages), registers ? 713 : cudaGetLastError());
    check("cudaHostRegister null", cudaHostRegister(NULL, 8192, 0), 1);
    check("cudaHostRegister nothing", cudaHostRegister(pages, 0, 0), 1);
    check("cudaHostUnregister null", cudaHostUnregister(NULL), 1);
    free(pages);
}

static void streams_and_events(void)
{
    void *stream = NULL, *other = NULL, *event = NULL, *later = NULL;
    check("cudaStreamCreate null", cudaStreamCreate(NULL), 1);
    check("cudaStreamCreate", cudaStreamCreate(&stream), 0);
    check("cudaStreamCreateWithFlags", cudaStreamCreateWithFlags(&other, 1), 0);
    check("cudaStreamCreateWithFlags bad", cudaStreamCreateWithFlags(&later, 77), 1);
    unsigned flags = 99;
    check("cudaStreamGetFlags", cudaStreamGetFlags(other, &flags), 0);
    check("the flags are those of its creation", flags, 1);
    check("cudaStreamGetFlags null", cudaStreamGetFlags(other, NULL), 1);
    check("cudaStreamQuery", cudaStreamQuery(stream), 0);
    check("cudaStreamQuery of none", cudaStreamQuery(BOGUS), 400);
    check("cudaStreamSynchronize", cudaStreamSynchronize(stream), 0);
    check("cudaStreamSynchronize of none", cudaStreamSynchronize(BOGUS), 400);
    check("cudaStreamSynchronize legacy", cudaStreamSynchronize((void *)1), 0);
    uint64_t id = 0, second = 0;
    check("cudaStreamGetId", cudaStreamGetId(stream, &id), 0);
    check("cudaStreamGetId other", cudaStreamGetId(other, &second), 0);
    check_true("numbers of streams differ", id != second);
    void *urgent = NULL;
    int priority = 99, least = 9, greatest = 9;
    cudaDeviceGetStreamPriorityRange(&least, &greatest);
    check("cudaStreamCreateWithPriority", cudaStreamCreateWithPriority(&urgent, 0, -1), 0);
    check("cudaStreamGetPriority", cudaStreamGetPriority(urgent, &priority), 0);
    check("the priority is that of its creation, within the range", priority, greatest < -1 ? -1 : greatest);
    check("cudaStreamDestroy urgent", cudaStreamDestroy(urgent), 0);
    check("cudaStreamDestroy again", cudaStreamDestroy(urgent), 400);
    check("cudaStreamDestroy of stream 0", cudaStreamDestroy(NULL), 400);

    check("cudaEventCreate null", cudaEventCreate(NULL), 1);
    check("cudaEventCreate", cudaEventCreate(&event), 0);
    check("cudaEventCreateWithFlags", cudaEventCreateWithFlags(&later, 0), 0);
    check("cudaEventCreateWithFlags bad", cudaEventCreateWithFlags(&later, 0x100), 1);
    check("cudaEventQuery not recorded", cudaEventQuery(event), 0);
    float milliseconds = -1;
    check("cudaEventElapsedTime not recorded", cudaEventElapsedTime(&milliseconds, event, later), 400);
    check("cudaEventRecord", cudaEventRecord(event, stream), 0);
    void *memory = NULL;
    cudaMalloc(&memory, 1 << 20);
    check("work between", cudaMemsetAsync(memory, 0, 1 << 20, stream), 0);
    check("cudaEventRecordWithFlags", cudaEventRecordWithFlags(later, stream, 0), 0);
    check("cudaStreamWaitEvent", cudaStreamWaitEvent(other, later, 0), 0);
    check("cudaStreamWaitEvent of none", cudaStreamWaitEvent(other, BOGUS, 0), 400);
    check("cudaEventSynchronize", cudaEventSynchronize(later), 0);
    check("cudaEventQuery", cudaEventQuery(later), 0);
    check("cudaEventElapsedTime", cudaEventElapsedTime(&milliseconds, event, later), 0);
    check_true("time goes forward", milliseconds >= 0 && milliseconds < 60000);
#if CUDA == 12
    check("cudaEventElapsedTime_v2", cudaEventElapsedTime_v2(&milliseconds, event, later), 0);
#endif
    check("cudaEventElapsedTime null", cudaEventElapsedTime(NULL, event, later), 1);
    check("cudaEventRecord of none", cudaEventRecord(BOGUS, stream), 400);
    check("cudaEventRecord in none", cudaEventRecord(event, BOGUS), 400);
    check("cudaEventDestroy", cudaEventDestroy(event), 0);
    check("cudaEventDestroy again", cudaEventDestroy(event), 400);
    check("cudaEventSynchronize of none", cudaEventSynchronize(event), 400);
    void *quiet = NULL;
    check("cudaEventCreateWithFlags without time", cudaEventCreateWithFlags(&quiet, 2), 0);
    cudaEventRecord(quiet, stream);
    cudaEventSynchronize(quiet);
    check("cudaEventElapsedTime without time", cudaEventElapsedTime(&milliseconds, quiet, later), 400);
    cudaEventDestroy(quiet);
    cudaEventDestroy(later);
    cudaStreamSynchronize(other);
    check("cudaStreamDestroy", cudaStreamDestroy(stream), 0);
    check("cudaStreamDestroy other", cudaStreamDestroy(other), 0);
    cudaFree(memory);
}

static void graphs(void)
{
    void *stream = NULL, *graph = NULL, *exec = NULL, *memory = NULL;
    unsigned status = 99;
    static unsigned char in[1000], got[1000];
    cudaStreamCreateWithFlags(&stream, 1);
    cudaMalloc(&memory, 4096);
    cudaMemset(memory, 0, 4096);
    check("cudaStreamIsCapturing", cudaStreamIsCapturing(stream, &status), 0);
    check("it is not", status, 0);
    check("cudaStreamIsCapturing null", cudaStreamIsCapturing(stream, NULL), 1);
    check("cudaStreamBeginCapture of stream 0", cudaStreamBeginCapture(NULL, 2), 900);
    check_either("cudaStreamEndCapture of none", cudaStreamEndCapture(stream, &graph), 401, 1);
    check("cudaStreamBeginCapture bad mode", cudaStreamBeginCapture(stream, 9), 1);
    check("cudaStreamBeginCapture", cudaStreamBeginCapture(stream, 2), 0);
    check("cudaStreamIsCapturing in it", cudaStreamIsCapturing(stream, &status), 0);
    check("it is", status, 1);
    check("captured fill", cudaMemsetAsync(memory, 0x33, 1000, stream), 0);
    check("captured copy", cudaMemcpyAsync((char *)memory + 1000, memory, 1000, D2D, stream), 0);
    check("cudaStreamEndCapture", cudaStreamEndCapture(stream, &graph), 0);
    check("cudaMemcpy before the launch", cudaMemcpy(got, (char *)memory + 1000, 1000, D2H), 0);
    same("nothing has been done", got, in, 1000);
    size_t nodes = 0;
    check("cudaGraphGetNodes", cudaGraphGetNodes(graph, NULL, &nodes), 0);
    check("two nodes", (long long)nodes, 2);
    if (!graphs_run) {
        skip("instances of graphs", "the device runs none");
        check("cudaGraphDestroy", cudaGraphDestroy(graph), 0);
        cudaFree(memory);
        cudaStreamDestroy(stream);
        return;
    }
    check("cudaGraphInstantiate null", cudaGraphInstantiate(NULL, graph, 0), 1);
    check("cudaGraphInstantiate", cudaGraphInstantiate(&exec, graph, 0), 0);
    check("cudaGraphUpload", cudaGraphUpload(exec, stream), 0);
    check("cudaGraphLaunch", cudaGraphLaunch(exec, stream), 0);
    check("its synchronize", cudaStreamSynchronize(stream), 0);
    check("cudaMemcpy after the launch", cudaMemcpy(got, (char *)memory + 1000, 1000, D2H), 0);
    memset(in, 0x33, sizeof in);
    same("both nodes have been done", got, in, 1000);

    void *changed = NULL;
    cudaStreamBeginCapture(stream, 2);
    cudaMemsetAsync(memory, 0x44, 1000, stream);
    cudaMemcpyAsync((char *)memory + 1000, memory, 1000, D2D, stream);
    check("cudaStreamEndCapture of the same shape", cudaStreamEndCapture(stream, &changed), 0);
    struct {
        int result;
        void *node, *from;
    } info = {99, NULL, NULL};
    check("cudaGraphExecUpdate null", cudaGraphExecUpdate(exec, changed, NULL), 1);
    check("cudaGraphExecUpdate", cudaGraphExecUpdate(exec, changed, &info), 0);
    check("the update's result", info.result, 0);
    check("cudaGraphLaunch after the update", cudaGraphLaunch(exec, stream), 0);
    cudaStreamSynchronize(stream);
    cudaMemcpy(got, (char *)memory + 1000, 1000, D2H);
    memset(in, 0x44, sizeof in);
    same("the new value has been filled in", got, in, 1000);
    cudaGraphDestroy(changed);
    cudaStreamBeginCapture(stream, 2);
    cudaMemsetAsync(memory, 0x44, 1000, stream);
    cudaStreamEndCapture(stream, &changed);
    check("cudaGraphExecUpdate of another shape", cudaGraphExecUpdate(exec, changed, &info), 910);
    check_true("the update says why", info.result != 0);
    check("cudaGraphDestroy", cudaGraphDestroy(changed), 0);

    cudaStreamBeginCapture(stream, 2);
    check("cudaStreamSynchronize in a capture", cudaStreamSynchronize(stream), 900);
    changed = BOGUS;
    check("cudaStreamEndCapture after that", cudaStreamEndCapture(stream, &changed), 901);
    check_true("there is no graph", changed == NULL);
    unsigned mode = 2;
    check("cudaThreadExchangeStreamCaptureMode", cudaThreadExchangeStreamCaptureMode(&mode), 0);
    check("the mode was global", mode, 0);
    cudaThreadExchangeStreamCaptureMode(&mode);

    check("cudaGraphDestroy the first", cudaGraphDestroy(graph), 0);
    check("cudaGraphLaunch of the instance alone", cudaGraphLaunch(exec, stream), 0);
    check("cudaGraphExecDestroy", cudaGraphExecDestroy(exec), 0);
    check_either("cudaGraphLaunch of none", cudaGraphLaunch(exec, stream), 400, 1);
    check_either("cudaGraphExecDestroy again", cudaGraphExecDestroy(exec), 400, 1);
    check("cudaGraphCreate", cudaGraphCreate(&graph, 0), 0);
    check("cudaGraphInstantiateWithFlags of nothing", cudaGraphInstantiateWithFlags(&exec, graph, 0), 0);
    check("cudaGraphLaunch of nothing", cudaGraphLaunch(exec, stream), 0);
    cudaStreamSynchronize(stream);
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
    cudaFree(memory);
    cudaStreamDestroy(stream);
}

static char hundred, adder, nobody, missing, numbers; /* their addresses stand for what is on the device */

static void code(void)
{
    static struct fatbin fatbin;
    static struct fatbin_wrapper wrapper;
    fatbin_make(&fatbin, PTX);
    fatbin_wrap(&wrapper, &fatbin);
    void **handle = __cudaRegisterFatBinary(&wrapper);
    check_true("__cudaRegisterFatBinary", handle != NULL);
    __cudaRegisterFunction(handle, &hundred, "hundred", "hundred", -1, NULL, NULL, NULL, NULL, NULL);
    __cudaRegisterFunction(handle, &adder, "add", "add", -1, NULL, NULL, NULL, NULL, NULL);
    __cudaRegisterFunction(handle, &missing, "missing", "missing", -1, NULL, NULL, NULL, NULL, NULL);
    __cudaRegisterVar(handle, &numbers, "table", "table", 0, 16, 0, 0);
    __cudaRegisterFatBinaryEnd(handle);

    dim3 grid = {2, 1, 1}, block = {64, 1, 1}, none = {0, 1, 1}, large = {1 << 20, 1, 1};
    uint64_t parameters[13] = {0};
    void *args[13];
    for (int i = 0; i < 13; i++)
        args[i] = &parameters[i];
    check("cudaLaunchKernel of none", cudaLaunchKernel(&nobody, grid, block, args, 0, NULL), 98);
    check("cudaLaunchKernel null", cudaLaunchKernel(NULL, grid, block, args, 0, NULL), 98);
    check("cudaLaunchCooperativeKernel of none", cudaLaunchCooperativeKernel(&nobody, grid, block, args, 0, NULL), 98);
    check("cudaLaunchKernelExC null", cudaLaunchKernelExC(NULL, &hundred, args), 1);
    function_attributes attributes;
    check("cudaFuncGetAttributes of none", cudaFuncGetAttributes(&attributes, &nobody), 98);
    check("cudaFuncSetAttribute of none", cudaFuncSetAttribute(&nobody, 8, 0), 98);
    void *kernel = NULL, *address = NULL;
    size_t bytes = 0;
    check("__cudaGetKernel of none", __cudaGetKernel(&kernel, &nobody), 98);
    check("cudaGetLastError", cudaGetLastError(), 98);
    check("__cudaLaunchKernel of none", __cudaLaunchKernel(NULL, grid, block, args, 0, NULL), 98);
    cudaGetLastError();
    check("cudaGetSymbolAddress of none", cudaGetSymbolAddress(&address, &nobody), 13);
    check("cudaGetSymbolSize of none", cudaGetSymbolSize(&bytes, &nobody), 13);
    check("cudaMemcpyToSymbol of none", cudaMemcpyToSymbol(&nobody, parameters, 4, 0, H2D), 13);
    dim3 popped_grid, popped_block;
    void *popped_stream = NULL;
    check("__cudaPushCallConfiguration", __cudaPushCallConfiguration(grid, block, 48, BOGUS), 0);
    check("__cudaPopCallConfiguration", __cudaPopCallConfiguration(&popped_grid, &popped_block, &bytes, &popped_stream), 0);
    check_true("the configuration comes back", popped_grid.x == 2 && popped_block.x == 64 && bytes == 48 &&
                                                   popped_stream == BOGUS);
    check("__cudaPopCallConfiguration of none",
          __cudaPopCallConfiguration(&popped_grid, &popped_block, &bytes, &popped_stream), 52);
    void *function = NULL;
    unsigned found = 9;
    check("cudaGetDriverEntryPoint", cudaGetDriverEntryPoint("cuMemAlloc", &function, 0, &found), 0);
    check_true("it is found", function != NULL && found == 0);
    check("cudaGetDriverEntryPoint of none", cudaGetDriverEntryPoint("cuNoSuchCall", &function, 0, &found), 0);
    check_true("it is not found", function == NULL && found == 1);
    check("cudaGetDriverEntryPoint null", cudaGetDriverEntryPoint(NULL, &function, 0, &found), 1);
    check("cudaGetDriverEntryPointByVersion",
          cudaGetDriverEntryPointByVersion("cuMemAlloc", &function, 3020, 0, &found), 0);
    check_true("it is found by version", function != NULL && found == 0);

    if (!kernels) {
        skip("launches, attributes, variables", "the device runs no code");
        int status = cudaLaunchKernel(&hundred, grid, block, args, 0, NULL);
        int late = cudaDeviceSynchronize();
        check_true("a launch that is not done is no success", status != 0 || late != 0);
        while (cudaGetLastError()) {
        }
        __cudaUnregisterFatBinary(handle);
        return;
    }
    check("cudaFuncGetAttributes", cudaFuncGetAttributes(&attributes, &hundred), 0);
    check("cudaFuncGetAttributes null", cudaFuncGetAttributes(NULL, &hundred), 1);
    check_true("a kernel has a limit of threads", attributes.max_threads > 0 && attributes.max_threads <= 1024);
    const char *name = NULL;
    check("cudaFuncGetName", cudaFuncGetName(&name, &hundred), 0);
    check_text("the name of a kernel", name, "hundred");
    check("cudaFuncSetAttribute", cudaFuncSetAttribute(&hundred, 8, 1024), 0);
    check("cudaFuncSetAttribute unknown", cudaFuncSetAttribute(&hundred, 99, 1), 1);
    check("cudaFuncSetCacheConfig", cudaFuncSetCacheConfig(&hundred, 1), 0);
    int blocks = -1;
    check("cudaOccupancyMaxActiveBlocksPerMultiprocessor",
          cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, &hundred, 64, 0), 0);
    check_true("a multiprocessor holds a block", blocks >= 1);
    check("cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags",
          cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&blocks, &hundred, 64, 0, 0), 0);
    check("cudaOccupancyMaxActiveBlocksPerMultiprocessor null",
          cudaOccupancyMaxActiveBlocksPerMultiprocessor(NULL, &hundred, 64, 0), 1);
    check("cudaGetFuncBySymbol", cudaGetFuncBySymbol(&function, &hundred), 0);
    check("cudaGetKernel", cudaGetKernel(&kernel, &hundred), 0);
    check("__cudaGetKernel", __cudaGetKernel(&kernel, &hundred), 0);
    check_true("a kernel's handle", kernel != NULL);

    check("cudaLaunchKernel", cudaLaunchKernel(&hundred, grid, block, args, 0, NULL), 0);
    check("cudaLaunchKernel_ptsz", cudaLaunchKernel_ptsz(&hundred, grid, block, args, 0, NULL), 0);
    check("__cudaLaunchKernel", __cudaLaunchKernel(kernel, grid, block, args, 0, NULL), 0);
    check("cudaLaunchKernel of a kernel's handle", cudaLaunchKernel(kernel, grid, block, args, 0, NULL), 0);
    launch_config config = {grid, block, 0, NULL, NULL, 0};
    check("cudaLaunchKernelExC", cudaLaunchKernelExC(&config, &hundred, args), 0);
    check("cudaLaunchKernel without a grid", cudaLaunchKernel(&hundred, none, block, args, 0, NULL), 9);
    check("cudaLaunchKernel without a block", cudaLaunchKernel(&hundred, grid, none, args, 0, NULL), 9);
    check("cudaLaunchKernel of too large a block", cudaLaunchKernel(&hundred, grid, large, args, 0, NULL), 9);
    check("cudaLaunchKernel of too much shared memory", cudaLaunchKernel(&hundred, grid, block, args, 1 << 30, NULL), 1);
    check("cudaLaunchKernel in none", cudaLaunchKernel(&hundred, grid, block, args, 0, BOGUS), 400);
    check("cudaDeviceSynchronize", cudaDeviceSynchronize(), 0);

    check("cudaGetSymbolAddress", cudaGetSymbolAddress(&address, &numbers), 0);
    check("cudaGetSymbolSize", cudaGetSymbolSize(&bytes, &numbers), 0);
    if (data) {
        check("a kernel that the code does not have", cudaLaunchKernel(&missing, grid, block, args, 0, NULL), 98);
        check("the size of a variable", (long long)bytes, 16);
        static unsigned words[100], got[100];
        void *memory = NULL;
        unsigned n = 100, number = 7;
        for (unsigned i = 0; i < n; i++)
            words[i] = i * i;
        cudaMalloc(&memory, sizeof words);
        cudaMemcpy(memory, words, sizeof words, H2D);
        void *add[] = {&memory, &n, &number};
        check("a launch that computes", cudaLaunchKernel(&adder, grid, block, add, 0, NULL), 0);
        check("its result", cudaMemcpy(got, memory, sizeof words, D2H), 0);
        for (unsigned i = 0; i < n; i++)
            words[i] += number;
        check("the sums are right", memcmp(words, got, sizeof words), 0);
        cudaFree(memory);
        unsigned char variable[16];
        check("cudaMemcpyFromSymbol", cudaMemcpyFromSymbol(variable, &numbers, 16, 0, D2H), 0);
        check("a variable's initial value", variable[15], 16);
        check("cudaMemcpyToSymbol", cudaMemcpyToSymbol(&numbers, "AB", 2, 14, H2D), 0);
        check("cudaMemcpyFromSymbol after", cudaMemcpyFromSymbol(variable, &numbers, 2, 14, D2H), 0);
        check("a variable's new value", variable[1], 'B');
        check("cudaMemcpyToSymbol past the end", cudaMemcpyToSymbol(&numbers, "AB", 2, 15, H2D), 1);
    }
    void *library = NULL, *loaded = NULL;
    check("cudaLibraryLoadData null", cudaLibraryLoadData(&library, NULL, NULL, NULL, 0, NULL, NULL, 0), 1);
    check("cudaLibraryLoadData", cudaLibraryLoadData(&library, &fatbin, NULL, NULL, 0, NULL, NULL, 0), 0);
    check("cudaLibraryGetKernel", cudaLibraryGetKernel(&loaded, library, "hundred"), 0);
    check("a launch from a library", cudaLaunchKernel(loaded, grid, block, args, 0, NULL), 0);
    check("cudaDeviceSynchronize after it", cudaDeviceSynchronize(), 0);
    check("cudaLibraryUnload", cudaLibraryUnload(library), 0);
    __cudaUnregisterFatBinary(handle);
    check("a kernel that was unregistered", cudaLaunchKernel(&hundred, grid, block, args, 0, NULL), 98);
}

static void *thread(void *unused)
{
    int ordinal = -1;
    void *memory = NULL;
    check("in another thread: no error", cudaPeekAtLastError(), 0);
    check("in another thread: cudaGetDevice", cudaGetDevice(&ordinal), 0);
    check("in another thread: device 0", ordinal, 0);
    check("in another thread: cudaMalloc", cudaMalloc(&memory, 4096), 0);
    check("in another thread: cudaMemsetAsync", cudaMemsetAsync(memory, 1, 4096, PER_THREAD), 0);
    check("in another thread: cudaStreamSynchronize", cudaStreamSynchronize(PER_THREAD), 0);
    check("in another thread: cudaFree", cudaFree(memory), 0);
    return unused;
}

static void threads(void)
{
    pthread_t other;
    cudaSetDevice(9999);
    if (pthread_create(&other, NULL, thread, NULL) == 0)
        pthread_join(other, NULL);
    check("this thread's error is still there", cudaGetLastError(), 101);
}

static void other_devices(void)
{
    if (counted < 2) {
        skip("a second device", "there is none");
        return;
    }
    int ordinal = -1;
    void *first = NULL, *second = NULL;
    static unsigned char in[5000], got[5000];
    fill(in, sizeof in, 9);
    cudaMalloc(&first, sizeof in);
    check("cudaSetDevice 1", cudaSetDevice(1), 0);
    check("cudaGetDevice 1", cudaGetDevice(&ordinal), 0);
    check("it is device 1", ordinal, 1);
    check("cudaMalloc on device 1", cudaMalloc(&second, sizeof in), 0);
    pointer_attributes attributes;
    check("cudaPointerGetAttributes on device 1", cudaPointerGetAttributes(&attributes, second), 0);
    check("the memory is device 1's", attributes.device, 1);
    cudaMemcpy(second, in, sizeof in, H2D);
    check("cudaMemcpyPeer between devices", cudaMemcpyPeer(first, 0, second, 1, sizeof in), 0);
    cudaSetDevice(0);
    cudaMemcpy(got, first, sizeof in, D2H);
    same("bytes come from the other device", in, got, sizeof in);
    cudaFree(first);
    check("cudaFree of the other device's memory", cudaFree(second), 0);
}

/* In a forked child of an initialised process. */
static int child_of_initialised(void)
{
    is_child = 1;
    int count = -1;
    void *memory = NULL;
    if (cudaGetDeviceCount(&count) != 3)
        return 10;
    if (cudaGetDevice(&count) != 3)
        return 11;
    if (cudaMalloc(&memory, 16) != 3)
        return 12;
    if (cudaDeviceSynchronize() != 3)
        return 13;
    if (cudaGetLastError() != 3)
        return 14;
    if (cudaFree(NULL) != 3)
        return 15;
    if (cudaLaunchKernel(&hundred, (dim3){1, 1, 1}, (dim3){1, 1, 1}, NULL, 0, NULL) != 3)
        return 16;
    return 0;
}

/* In a forked child of a process that has not called CUDA: it is a process like any other. */
static int child_of_fresh(void)
{
    is_child = 1;
    void *memory = NULL;
    int status = cudaMalloc(&memory, 4096);
    return status ? 20 + status : cudaFree(memory);
}

/* A device address that is none: found out by the guest at once, or by the host later; then the context is lost. */
static int child_with_bad_address(void)
{
    is_child = 1;
    void *memory = NULL;
    if (cudaMalloc(&memory, 4096))
        return 30;
    int status = cudaMemset((void *)0x7777777000, 0, 16);
    int late = cudaDeviceSynchronize();
    if (status == 1)
        return 0;
    if (!data)
        return 0; /* a device that does nothing finds nothing */
    if (late != 700)
        return 31;
    if (cudaGetLastError() != 700 || cudaGetLastError() != 700)
        return 32;
    if (cudaMalloc(&memory, 16) != 700)
        return 33;
    return cudaMemset(memory, 0, 16) == 700 ? 0 : 34;
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    data = has(argc, argv, "data");
    graphs_run = has(argc, argv, "graphs");
    kernels = has(argc, argv, "kernels");
    atexit(at_exit); /* before the first call: runs after the libraries' own handlers */

    check("a child forked before the first call", forked(child_of_fresh), 0);
    check("a child that uses a bad address", forked(child_with_bad_address), 0);
    versions();
    last_error();
    devices();
    memory();
    host_memory();
    streams_and_events();
    graphs();
    code();
    threads();
    other_devices();

    void *kept = NULL;
    static unsigned char in[3000], got[3000];
    fill(in, sizeof in, 11);
    cudaMalloc(&kept, sizeof in);
    cudaMemcpy(kept, in, sizeof in, H2D);
    check("a forked child", forked(child_of_initialised), 0);
    check("after the child's exit: cudaMemcpy", cudaMemcpy(got, kept, sizeof in, D2H), 0);
    same("after the child's exit: the parent's memory", in, got, sizeof in);
    check("after the child's exit: cudaDeviceSynchronize", cudaDeviceSynchronize(), 0);

    check("cudaDeviceReset", cudaDeviceReset(), 0);
    check("memory of before a reset", cudaFree(kept), 1);
    check("cudaMalloc after a reset", cudaMalloc(&kept, 4096), 0);
    check("cudaFree after a reset", cudaFree(kept), 0);
    cudaGetLastError();
    return failures ? 1 : 0;
}
