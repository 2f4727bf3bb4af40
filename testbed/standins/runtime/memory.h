/* Memory and copies. Part of runtime.c. */
#ifndef VGPU_STANDINS_RUNTIME_MEMORY_H
#define VGPU_STANDINS_RUNTIME_MEMORY_H

#include "../check.h"
#include "api.h"

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
    check("cudaMemset2DAsync", cudaMemset2DAsync(q, pitch, 0x42, 100, 7, NULL), 0);
    cudaMemcpy2D(back, 100, q, pitch, 100, 7, D2H);
    memset(rows, 0x42, sizeof rows);
    same("rows are filled in order of a stream", rows, back, sizeof rows);
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
    check("cudaMemset3DAsync", cudaMemset3DAsync(box, 8, size, NULL), 0);
    copy3d_peer between = {.src = box, .dst = box, .dst_pos = {0, 0, 1}, .extent = {24, 5, 1}};
    check("cudaMemcpy3DPeer", cudaMemcpy3DPeer(&between), 0);
    check("cudaMemcpy3DPeerAsync", cudaMemcpy3DPeerAsync(&between, NULL), 0);
    check("cudaMemcpy3DPeer null", cudaMemcpy3DPeer(NULL), 1);
    between.src_device = counted;
    check("cudaMemcpy3DPeer no device", cudaMemcpy3DPeer(&between), 101);
    cudaMemcpy3D(&out);
    memset(slices, 8, sizeof slices);
    same("slices are filled in order of a stream", slices, slices_back, sizeof slices);
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
    void *pool = NULL, *first = NULL;
    int pools = 0;
    cudaDeviceGetAttribute(&pools, 115, 0);
    check("cudaDeviceGetDefaultMemPool", cudaDeviceGetDefaultMemPool(&first, 0), pools ? 0 : 801);
    check("cudaDeviceGetDefaultMemPool no device", cudaDeviceGetDefaultMemPool(&first, counted), 101);
    if (pools) {
        pool_properties wanted = {.type = 1, .location = 1, .id = 0};
        uint64_t keep = UINT64_MAX, used = 9;
        check("cudaMemPoolCreate", cudaMemPoolCreate(&pool, &wanted), 0);
        check("cudaMemPoolSetAttribute", cudaMemPoolSetAttribute(pool, 4, &keep), 0);
        check("cudaMallocFromPoolAsync", cudaMallocFromPoolAsync(&q, 5000, pool, NULL), 0);
        check("cudaMemPoolGetAttribute", cudaMemPoolGetAttribute(pool, 7, &used), 0);
        check("what is used", (long long)used, 5000);
        check("cudaFreeAsync to it", cudaFreeAsync(q, NULL), 0);
        check("cudaMallocFromPoolAsync nothing", cudaMallocFromPoolAsync(&q, 0, pool, NULL), 0);
        check("cudaMemPoolTrimTo", cudaMemPoolTrimTo(pool, 0), 0);
        struct { unsigned location, id, flags; } own = {1, 0, 3};
        unsigned rights = 9;
        check("cudaMemPoolSetAccess", cudaMemPoolSetAccess(pool, &own, 1), 0);
        check("cudaMemPoolGetAccess", cudaMemPoolGetAccess(&rights, pool, &own), 0);
        check("a device reaches its own pool", rights, 3);
        check("cudaMallocFromPoolAsync_ptsz", cudaMallocFromPoolAsync_ptsz(&q, 5000, pool, NULL), 0);
        check("cudaFree of it", cudaFree(q), 0);
#if CUDA == 13
        void *there = NULL;
        check("cudaMemGetDefaultMemPool", cudaMemGetDefaultMemPool(&there, &own, 1), 0);
        check_true("the device's default pool", there == first);
        check("cudaMemSetMemPool", cudaMemSetMemPool(&own, 1, pool), 0);
        check("cudaMemGetMemPool", cudaMemGetMemPool(&there, &own, 1), 0);
        check_true("the pool that was set", there == pool);
#endif
        check("cudaDeviceSetMemPool", cudaDeviceSetMemPool(0, pool), 0);
        check("cudaMemPoolDestroy", cudaMemPoolDestroy(pool), 0);
        pool = NULL;
        check("cudaDeviceGetMemPool", cudaDeviceGetMemPool(&pool, 0), 0);
        check_true("the default pool is the current one again", pool == first);
    }
    check("cudaCtxResetPersistingL2Cache", cudaCtxResetPersistingL2Cache(), 0);
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
    check("cudaHostUnregister of none", cudaHostUnregister(pages), 713);
    check("cudaHostRegister null", cudaHostRegister(NULL, 8192, 0), 1);
    check("cudaHostRegister nothing", cudaHostRegister(pages, 0, 0), 1);
    check("cudaHostUnregister null", cudaHostUnregister(NULL), 1);
    free(pages);
}

#endif
