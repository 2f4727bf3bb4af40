/* Memory and copies. Part of driver.c. */
#ifndef VGPU_STANDINS_DRIVER_MEMORY_H
#define VGPU_STANDINS_DRIVER_MEMORY_H

#include "../check.h"
#include "api.h"

static void memory(void)
{
    address p = 0, q = 0, start = 0;
    size_t free_bytes = 0, total = 0, stated = 0, bytes = 0;
    check("cuMemGetInfo", cuMemGetInfo_v2(&free_bytes, &total), 0);
    cuDeviceTotalMem_v2(&stated, 0);
    check("both totals are the same", (long long)total, (long long)stated);
    check("cuMemAlloc null", cuMemAlloc_v2(NULL, 16), 1);
    check("cuMemAlloc nothing", cuMemAlloc_v2(&p, 0), 1);
    check("cuMemAlloc too much", cuMemAlloc_v2(&p, (size_t)1 << 60), 2);
    check("cuMemAlloc", cuMemAlloc_v2(&p, 1 << 20), 0);
    check("memory is aligned", (long long)(p % 256), 0);
    check("cuMemGetAddressRange", cuMemGetAddressRange_v2(&start, &bytes, p + 1000), 0);
    check_true("the range is that of the allocation", start == p && bytes >= 1 << 20);
    check_true("cuMemGetAddressRange of none", cuMemGetAddressRange_v2(&start, &bytes, 16) != 0);
    check("cuMemAlloc another", cuMemAlloc_v2(&q, 1), 0);
    check("cuMemFree", cuMemFree_v2(q), 0);
    check("cuMemFree again", cuMemFree_v2(q), 1);
    check("cuMemFree of the middle", cuMemFree_v2(p + 512), 1);
    check("cuMemFree of nothing", cuMemFree_v2(0), 0);

    static unsigned char in[300000], got[300000];
    fill(in, sizeof in, 1);
    check("cuMemcpyHtoD", cuMemcpyHtoD_v2(p, in, sizeof in), 0);
    check("cuMemcpyDtoH", cuMemcpyDtoH_v2(got, p, sizeof in), 0);
    same("bytes come back", in, got, sizeof in);
    check("cuMemcpyDtoD", cuMemcpyDtoD_v2(p + 500000, p, sizeof in), 0);
    memset(got, 0, sizeof got);
    check("cuMemcpyDtoHAsync", cuMemcpyDtoHAsync_v2(got, p + 500000, sizeof in, NULL), 0);
    check("cuStreamSynchronize", cuStreamSynchronize(NULL), 0);
    same("bytes come back from where they were copied", in, got, sizeof in);
    fill(in, sizeof in, 2);
    check("cuMemcpyHtoDAsync", cuMemcpyHtoDAsync_v2(p, in, sizeof in, PER_THREAD), 0);
    check("cuMemcpyDtoDAsync", cuMemcpyDtoDAsync_v2(p + 500000, p, sizeof in, PER_THREAD), 0);
    check("cuMemcpyDtoHAsync per thread", cuMemcpyDtoHAsync_v2(got, p + 500000, sizeof in, PER_THREAD), 0);
    check("cuStreamSynchronize per thread", cuStreamSynchronize(PER_THREAD), 0);
    same("bytes come back in order of a stream", in, got, sizeof in);
    check("cuMemcpyHtoD per thread", cuMemcpyHtoD_v2_ptds(p, in + 1, 100), 0);
    check("cuMemcpyDtoH per thread", cuMemcpyDtoH_v2_ptds(got, p, 100), 0);
    same("bytes come back by the per-thread stream", in + 1, got, 100);
    memset(got, 0, sizeof got);
    check("cuMemcpy by addresses", cuMemcpy((address)(uintptr_t)got, p + 500000, 1000), 0);
    same("bytes come back by addresses", in, got, 1000);
    check("cuMemcpyHtoD nothing", cuMemcpyHtoD_v2(p, in, 0), 0);
    check("cuMemcpyHtoD null", cuMemcpyHtoD_v2(p, NULL, 16), 1);
    check("cuMemcpyDtoH null", cuMemcpyDtoH_v2(NULL, p, 16), 1);
    check("cuMemcpyHtoDAsync in none", cuMemcpyHtoDAsync_v2(p, in, 16, BOGUS), 400);
    check("cuMemsetD8", cuMemsetD8_v2(p, 0xab, 1000), 0);
    check("cuMemsetD16", cuMemsetD16_v2(p + 1000, 0x1234, 500), 0);
    check("cuMemsetD32", cuMemsetD32_v2(p + 2000, 0x01020304, 250), 0);
    check("cuMemsetD8Async", cuMemsetD8Async(p + 3000, 0, 1000, NULL), 0);
    cuMemcpyDtoH_v2(got, p, 4000);
    memset(in, 0xab, 1000);
    for (int i = 0; i < 500; i++)
        memcpy(in + 1000 + 2 * i, "\x34\x12", 2);
    for (int i = 0; i < 250; i++)
        memcpy(in + 2000 + 4 * i, "\x04\x03\x02\x01", 4);
    memset(in + 3000, 0, 1000);
    same("values are filled in", in, got, 4000);
    check("cuMemsetD16Async", cuMemsetD16Async(p, 0x1234, 500, NULL), 0);
    check("cuMemsetD32Async", cuMemsetD32Async(p + 1000, 0x01020304, 250, NULL), 0);
    check("cuMemcpyAsync by addresses", cuMemcpyAsync((address)(uintptr_t)got, p, 2000, NULL), 0);
    cuStreamSynchronize(NULL);
    same("values are filled in order of a stream", in + 1000, got, 2000);
    check("cuMemsetD16 not aligned", cuMemsetD16_v2(p + 1, 0, 4), 1);
    check("cuMemsetD32 not aligned", cuMemsetD32_v2(p + 2, 0, 4), 1);
    check("cuMemsetD8 nothing", cuMemsetD8_v2(p, 0, 0), 0);
    check("cuMemsetD8Async in none", cuMemsetD8Async(p, 0, 4, BOGUS), 400);

    size_t pitch = 0;
    check("cuMemAllocPitch", cuMemAllocPitch_v2(&q, &pitch, 100, 7, 4), 0);
    check_true("a pitch is no less than the width", pitch >= 100);
    check("cuMemAllocPitch bad element", cuMemAllocPitch_v2(&start, &pitch, 100, 7, 3), 1);
    check("cuMemAllocPitch nothing", cuMemAllocPitch_v2(&start, &pitch, 0, 7, 4), 1);
    cuMemAllocPitch_v2(&start, &pitch, 100, 7, 4);
    cuMemFree_v2(start);
    static unsigned char rows[7][100], back[7][100];
    fill(&rows[0][0], sizeof rows, 3);
    copy2d to = {.src = {.type = 1, .host = rows, .pitch = 100}, .dst = {.type = 2, .device = q, .pitch = pitch}, .width = 100, .height = 7};
    copy2d from = {.src = {.type = 2, .device = q, .pitch = pitch}, .dst = {.type = 1, .host = back, .pitch = 100}, .width = 100, .height = 7};
    check("cuMemcpy2D", cuMemcpy2D_v2(&to), 0);
    check("cuMemcpy2DUnaligned", cuMemcpy2DUnaligned_v2(&from), 0);
    same("rows come back", rows, back, sizeof rows);
    check("cuMemsetD2D8", cuMemsetD2D8_v2(q, pitch, 5, 40, 7), 0);
    check("cuMemsetD2D32", cuMemsetD2D32_v2(q + 40, pitch, 0x06060606, 5, 7), 0);
    check("cuMemsetD2D16", cuMemsetD2D16_v2(q + 60, pitch, 0x0707, 10, 7), 0);
    check("cuMemsetD2D8Async", cuMemsetD2D8Async(q + 80, pitch, 8, 4, 7, NULL), 0);
    check("cuMemsetD2D16Async", cuMemsetD2D16Async(q + 84, pitch, 0x0909, 2, 7, NULL), 0);
    check("cuMemsetD2D32Async", cuMemsetD2D32Async(q + 88, pitch, 0x0a0a0a0a, 3, 7, NULL), 0);
    check("cuMemcpy2DAsync", cuMemcpy2DAsync_v2(&from, NULL), 0);
    cuStreamSynchronize(NULL);
    for (int row = 0; row < 7; row++) {
        memset(rows[row], 5, 40);
        memset(rows[row] + 40, 6, 20);
        memset(rows[row] + 60, 7, 20);
        memset(rows[row] + 80, 8, 4);
        memset(rows[row] + 84, 9, 4);
        memset(rows[row] + 88, 10, 12);
    }
    same("parts of rows are filled in", rows, back, sizeof rows);
    check("cuMemcpy2D null", cuMemcpy2D_v2(NULL), 1);
    to.dst.pitch = 50;
    check("cuMemcpy2D bad pitch", cuMemcpy2D_v2(&to), 1);
    to.src.type = 77;
    check("cuMemcpy2D bad type", cuMemcpy2D_v2(&to), 1);
    cuMemFree_v2(q);
    static unsigned char slices[3][4][20], slices_back[3][4][20];
    fill(&slices[0][0][0], sizeof slices, 4);
    copy3d in3 = {.src = {.type = 1, .host = slices, .pitch = 20, .height = 4}, .dst = {.type = 2, .device = p, .pitch = 64, .height = 8}, .width = 20, .height = 4, .depth = 3};
    copy3d out3 = {.src = {.type = 2, .device = p, .pitch = 64, .height = 8}, .dst = {.type = 1, .host = slices_back, .pitch = 20, .height = 4}, .width = 20, .height = 4, .depth = 3};
    check("cuMemcpy3D", cuMemcpy3D_v2(&in3), 0);
    check("cuMemcpy3DAsync", cuMemcpy3DAsync_v2(&out3, NULL), 0);
    cuStreamSynchronize(NULL);
    same("slices come back", slices, slices_back, sizeof slices);
    void *context = NULL;
    cuCtxGetCurrent(&context);
    copy3d between = out3;
    between.src.context = between.dst.context = context;
    between.dst = between.src;
    between.dst.device = p + 65536;
    check("cuMemcpy3DPeer", cuMemcpy3DPeer(&between), 0);
    check("cuMemcpy3DPeerAsync", cuMemcpy3DPeerAsync(&between, NULL), 0);
    check("cuMemcpyPeer", cuMemcpyPeer(p + 4096, context, p, context, 100), 0);
    check("cuMemcpyPeerAsync", cuMemcpyPeerAsync(p + 4096, context, p, context, 100, NULL), 0);
    check_either("cuMemcpyPeer of no context", cuMemcpyPeer(p + 4096, BOGUS, p, context, 100), 201, 400);

    check("cuMemAllocAsync", cuMemAllocAsync(&q, 4096, NULL), 0);
    check("cuMemFreeAsync", cuMemFreeAsync(q, NULL), 0);
    check("cuMemAllocAsync nothing", cuMemAllocAsync(&q, 0, NULL), 1);
    check("cuMemAllocAsync in none", cuMemAllocAsync(&q, 16, BOGUS), 400);
    int managed = 0;
    cuDeviceGetAttribute(&managed, 83, 0);
    int status = cuMemAllocManaged(&q, 4096, 1);
    check("cuMemAllocManaged", status, managed ? 0 : 801);
    if (!status)
        cuMemFree_v2(q);

    int type = 9, ordinal = 9;
    address pointer = 0;
    check("cuPointerGetAttribute", cuPointerGetAttribute(&type, 2, p + 10), 0);
    check("it is the device's", type, 2);
    check("cuPointerGetAttribute ordinal", cuPointerGetAttribute(&ordinal, 9, p), 0);
    check("it is device 0's", ordinal, 0);
    check("cuPointerGetAttribute pointer", cuPointerGetAttribute(&pointer, 3, p + 10), 0);
    check_true("it is the address", pointer == p + 10);
    check("cuPointerGetAttribute of plain memory", cuPointerGetAttribute(&type, 2, (address)(uintptr_t)in), 1);
    int attributes[2] = {2, 9};
    void *places[2] = {&type, &ordinal};
    check("cuPointerGetAttributes of plain memory", cuPointerGetAttributes(2, attributes, places, (address)(uintptr_t)in), 0);
    check("plain memory is of no type", type, 0);
    check("cuPointerGetAttribute null", cuPointerGetAttribute(NULL, 2, p), 1);
    check("cuPointerGetAttribute unknown", cuPointerGetAttribute(&type, 999, p), 1);
    cuMemFree_v2(p);
}

static void host_memory(void)
{
    void *p = NULL, *q = NULL;
    address device = 0;
    unsigned flags = 99;
    int type = 9, registers = 0, mapped = 0;
    static unsigned char plain[8192], got[8192];
    check("cuMemAllocHost null", cuMemAllocHost_v2(NULL, 16), 1);
    check("cuMemAllocHost nothing", cuMemAllocHost_v2(&p, 0), 1);
    check("cuMemAllocHost", cuMemAllocHost_v2(&p, 8192), 0);
    check("cuMemHostAlloc", cuMemHostAlloc(&q, 8192, 2), 0);
    check("cuMemHostAlloc bad flags", cuMemHostAlloc(&q, 8192, 0x100), 1);
    check("cuMemHostGetFlags", cuMemHostGetFlags(&flags, q), 0);
    check_true("mapped memory says so", (flags & 2) != 0);
    check("cuMemHostGetFlags of plain memory", cuMemHostGetFlags(&flags, plain), 1);
    check("cuPointerGetAttribute", cuPointerGetAttribute(&type, 2, (address)(uintptr_t)p + 5), 0);
    check("pinned memory is the host's", type, 1);
    cuDeviceGetAttribute(&mapped, 19, 0);
    int status = cuMemHostGetDevicePointer_v2(&device, q, 0);
    if (mapped)
        check("cuMemHostGetDevicePointer", status, 0);
    else
        check_either("cuMemHostGetDevicePointer where none is mapped", status, 801, 1);
    check("cuMemHostGetDevicePointer null", cuMemHostGetDevicePointer_v2(NULL, q, 0), 1);
    check("cuMemHostGetDevicePointer bad flags", cuMemHostGetDevicePointer_v2(&device, q, 5), 1);
    address memory = 0;
    cuMemAlloc_v2(&memory, 8192);
    fill(p, 8192, 7);
    check("cuMemcpyHtoDAsync from pinned memory", cuMemcpyHtoDAsync_v2(memory, p, 8192, NULL), 0);
    check("cuMemcpyDtoHAsync to pinned memory", cuMemcpyDtoHAsync_v2(q, memory, 8192, NULL), 0);
    check("cuCtxSynchronize", cuCtxSynchronize(), 0);
    memcpy(got, q, 8192);
    same("pinned bytes come back", p, got, 8192);
    cuMemFree_v2(memory);
    check("cuMemFreeHost", cuMemFreeHost(p), 0);
    check("cuMemFreeHost again", cuMemFreeHost(p), 1);
    check("cuMemFreeHost other", cuMemFreeHost(q), 0);
    check("cuMemFreeHost null", cuMemFreeHost(NULL), 1);
    cuDeviceGetAttribute(&registers, 99, 0);
    void *pages = aligned_alloc(4096, 8192);
    status = cuMemHostRegister_v2(pages, 8192, 0);
    check("cuMemHostRegister", status, registers ? 0 : 801);
    if (status == 0)
        check("cuMemHostUnregister", cuMemHostUnregister(pages), 0);
    check("cuMemHostUnregister of none", cuMemHostUnregister(pages), 713);
    check("cuMemHostRegister bad flags", cuMemHostRegister_v2(pages, 8192, 64), 1);
    check("cuMemHostRegister nothing", cuMemHostRegister_v2(pages, 0, 0), 1);
    free(pages);
}

static void virtual_memory(void)
{
    int supported = 0;
    cuDeviceGetAttribute(&supported, 102, 0);
    allocation wanted = {.type = 1, .location = 1, .id = 0};
    size_t granularity = 0;
    if (!supported) {
        skip("virtual memory", "the device has none");
        address start = 0;
        check("cuMemAddressReserve where there is none", cuMemAddressReserve(&start, 2 << 20, 0, 0, 0), 801);
        return;
    }
    check("cuMemGetAllocationGranularity", cuMemGetAllocationGranularity(&granularity, &wanted, 0), 0);
    check_true("a granularity", granularity && (granularity & (granularity - 1)) == 0);
    check("cuMemGetAllocationGranularity null", cuMemGetAllocationGranularity(NULL, &wanted, 0), 1);
    address start = 0;
    uint64_t handle = 0;
    access_rights all = {1, 0, 3};
    check("cuMemAddressReserve", cuMemAddressReserve(&start, 4 * granularity, 0, 0, 0), 0);
    check("cuMemAddressReserve not aligned", cuMemAddressReserve(&start, 4 * granularity + 1, 0, 0, 0), 1);
    check("cuMemCreate", cuMemCreate(&handle, granularity, &wanted, 0), 0);
    check("cuMemCreate not aligned", cuMemCreate(&handle, granularity + 1, &wanted, 0), 1);
    check("cuMemMap", cuMemMap(start, granularity, 0, handle, 0), 0);
    check("cuMemSetAccess", cuMemSetAccess(start, granularity, &all, 1), 0);
    uint64_t rights = 9, again = 0;
    check("cuMemGetAccess", cuMemGetAccess(&rights, &all, start + 1), 0);
    check("the right is what was set", (long long)rights, 3);
    check("cuMemMap where something is", cuMemMap(start, granularity, 0, handle, 0), 1);
    check("cuMemExportToShareableHandle", cuMemExportToShareableHandle(&again, handle, 1, 0), 801);
    check("cuMemRelease", cuMemRelease(handle), 0);
    check("cuMemRetainAllocationHandle", cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(start + 9)), 0);
    check_true("the handle is the same", again == handle);
    check("cuMemGetAllocationPropertiesFromHandle", cuMemGetAllocationPropertiesFromHandle(&wanted, again), 0);
    check("cuMemMap the same memory again", cuMemMap(start + granularity, granularity, 0, again, 0), 0);
    check("cuMemSetAccess of both", cuMemSetAccess(start, 2 * granularity, &all, 1), 0);
    check("cuMemRelease again", cuMemRelease(again), 0);
    check("cuMemRelease once too often", cuMemRelease(again), 1);
    check("cuMemAddressFree while something is mapped", cuMemAddressFree(start, 4 * granularity), 1);
    check("cuMemUnmap half of it", cuMemUnmap(start, granularity / 2), 1);
    address base = 0;
    size_t bytes = 0;
    check("cuMemGetAddressRange of a mapping", cuMemGetAddressRange_v2(&base, &bytes, start + granularity + 5), 0);
    check_true("the range is the mapping's", base == start + granularity && bytes == granularity);
    static unsigned char in[1000], got[1000];
    fill(in, sizeof in, 8);
    check("cuMemcpyHtoD to it", cuMemcpyHtoD_v2(start, in, sizeof in), 0);
    check("cuMemcpyDtoH from it", cuMemcpyDtoH_v2(got, start, sizeof in), 0);
    same("mapped bytes come back", in, got, sizeof in);
    memset(got, 0, sizeof got);
    check("cuMemcpyDtoH from the other mapping", cuMemcpyDtoH_v2(got, start + granularity, sizeof in), 0);
    same("both mappings are of one memory", in, got, sizeof in);
    check("cuMemcpyDtoH across the end", cuMemcpyDtoH_v2(got, start + 2 * granularity - 1, 2), 1);
    check("cuMemUnmap", cuMemUnmap(start, granularity), 0);
    check("cuMemcpyDtoH of what is unmapped", cuMemcpyDtoH_v2(got, start, 1), 1);
    memset(got, 0, sizeof got);
    check("cuMemcpyDtoH of what is still mapped", cuMemcpyDtoH_v2(got, start + granularity, sizeof in), 0);
    same("the memory stays with its last mapping", in, got, sizeof in);
    check("cuMemUnmap the other", cuMemUnmap(start + granularity, granularity), 0);
    check("cuMemAddressFree", cuMemAddressFree(start, 4 * granularity), 0);
    check("cuMemAddressFree again", cuMemAddressFree(start, 4 * granularity), 1);
}

#endif
