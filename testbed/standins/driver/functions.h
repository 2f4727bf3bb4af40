/* Functions of the host in the order of a stream, and pools of memory. Part of driver.c. */
#ifndef VGPU_STANDINS_DRIVER_FUNCTIONS_H
#define VGPU_STANDINS_DRIVER_FUNCTIONS_H

#include "../check.h"
#include "api.h"

/* Pinned memory that work before and after a function uses. */
struct shared_page {
    unsigned char *bytes;
    int seen[3], calls;
};

#define PAGE_BYTES 65536

/* Sees what the copy before it has brought, and leaves something else for the copy after it. */
static void take_turn(void *argument)
{
    struct shared_page *page = argument;
    page->seen[page->calls++] = page->bytes[PAGE_BYTES - 1];
    memset(page->bytes, 0x99, PAGE_BYTES);
}

static void take_turn_with_status(void *stream, int status, void *argument)
{
    struct shared_page *page = argument;
    page->seen[page->calls++] = status == 0 && stream ? 0x100 : -1;
}

static void host_functions(void)
{
    void *stream = NULL, *pinned = NULL;
    address memory = 0;
    struct shared_page page = {NULL, {-1, -1, -1}, 0};
    cuStreamCreate(&stream, 1);
    cuMemAlloc_v2(&memory, PAGE_BYTES);
    cuMemAllocHost_v2(&pinned, PAGE_BYTES);
    page.bytes = pinned;
    check("cuLaunchHostFunc null", cuLaunchHostFunc(stream, NULL, &page), 1);
    check("cuStreamAddCallback null", cuStreamAddCallback(stream, NULL, &page, 0), 1);
    check("cuStreamAddCallback bad flags", cuStreamAddCallback(stream, take_turn_with_status, &page, 1), 1);
    check("cuLaunchHostFunc in none", cuLaunchHostFunc(BOGUS, take_turn, &page), 400);
    check("cuMemsetD8Async before", cuMemsetD8Async(memory, 0x55, PAGE_BYTES, stream), 0);
    check("cuMemcpyDtoHAsync before", cuMemcpyDtoHAsync_v2(pinned, memory, PAGE_BYTES, stream), 0);
    /* Only a device that does the work can be held. */
    if (!check("cuLaunchHostFunc", cuLaunchHostFunc(stream, take_turn, &page), data ? 0 : 801) || !data) {
        skip("host functions", "the device has none");
    } else {
        check("cuMemcpyHtoDAsync after", cuMemcpyHtoDAsync_v2(memory, pinned, PAGE_BYTES, stream), 0);
        check("cuStreamAddCallback", cuStreamAddCallback(stream, take_turn_with_status, &page, 0), 0);
        check("cuLaunchHostFunc another", cuLaunchHostFunc(stream, take_turn, &page), 0);
        check("cuStreamSynchronize after functions", cuStreamSynchronize(stream), 0);
        check("all were called", page.calls, 3);
        check("the first saw what was copied before it", page.seen[0], 0x55);
        check("the second got its stream and success", page.seen[1], 0x100);
        check("the third came last", page.seen[2], 0x99);
        unsigned char got[16] = {0};
        cuMemcpyDtoH_v2(got, memory + PAGE_BYTES - sizeof got, sizeof got);
        unsigned char expected[16];
        memset(expected, 0x99, sizeof expected);
        same("the copy after it took what it left", got, expected, sizeof got);
        page.calls = 0;
        check("cuLaunchHostFunc_ptsz", cuLaunchHostFunc_ptsz(NULL, take_turn, &page), 0);
        check("cuStreamAddCallback_ptsz", cuStreamAddCallback_ptsz(PER_THREAD, take_turn_with_status, &page, 0), 0);
        check("cuLaunchHostFunc_v2_ptsz", cuLaunchHostFunc_v2_ptsz(NULL, take_turn, &page, 1), 0);
        check("cuStreamSynchronize per thread after functions", cuStreamSynchronize(PER_THREAD), 0);
        check("all were called again", page.calls, 3);
        check("cuLaunchHostFunc_v2 bad mode", cuLaunchHostFunc_v2(stream, take_turn, &page, 2), 1);
    }
    cuStreamSynchronize(stream);
    cuMemFreeHost(pinned);
    cuMemFree_v2(memory);
    cuStreamDestroy_v2(stream);
}

static uint64_t pool_figure(void *pool, int attribute)
{
    uint64_t value = 12345;
    cuMemPoolGetAttribute(pool, attribute, &value);
    return value;
}

static void pools(void)
{
    int supported = 0;
    void *first = NULL, *current = NULL, *pool = NULL;
    cuDeviceGetAttribute(&supported, 115, 0);
    check("cuDeviceGetDefaultMemPool", cuDeviceGetDefaultMemPool(&first, 0), supported ? 0 : 801);
    if (!supported) {
        skip("pools", "the device has none");
        return;
    }
    check("cuDeviceGetMemPool", cuDeviceGetMemPool(&current, 0), 0);
    check_true("the default pool is the current one", current == first);
    pool_properties wanted = {.type = 1, .location = 1, .id = 0};
    check("cuMemPoolCreate null", cuMemPoolCreate(NULL, &wanted), 1);
    check("cuMemPoolCreate", cuMemPoolCreate(&pool, &wanted), 0);
    check("cuMemPoolDestroy the default", cuMemPoolDestroy(first), 1);
    uint64_t keep = 1 << 20;
    check("cuMemPoolSetAttribute", cuMemPoolSetAttribute(pool, 4, &keep), 0);
    check("cuMemPoolSetAttribute of none", cuMemPoolSetAttribute(pool, 77, &keep), 1);
    check("its threshold", (long long)pool_figure(pool, 4), 1 << 20);
    check("cuDeviceSetMemPool", cuDeviceSetMemPool(0, pool), 0);
    address memory = 0;
    static unsigned char in[100000], got[100000];
    fill(in, sizeof in, 21);
    check("cuMemAllocAsync from it", cuMemAllocAsync(&memory, sizeof in, NULL), 0);
    check("what is used", (long long)pool_figure(pool, 7), sizeof in);
    check("cuMemcpyHtoDAsync to it", cuMemcpyHtoDAsync_v2(memory, in, sizeof in, NULL), 0);
    check("cuMemcpyDtoHAsync from it", cuMemcpyDtoHAsync_v2(got, memory, sizeof in, NULL), 0);
    check("cuMemFreeAsync to it", cuMemFreeAsync(memory, NULL), 0);
    cuStreamSynchronize(NULL);
    same("a pool's bytes come back", in, got, sizeof in);
    check("nothing is used", (long long)pool_figure(pool, 7), 0);
    check("cuMemAllocFromPoolAsync", cuMemAllocFromPoolAsync(&memory, 4096, pool, PER_THREAD), 0);
    check("cuMemFree of it", cuMemFree_v2(memory), 0);
    check("cuMemAllocFromPoolAsync_ptsz", cuMemAllocFromPoolAsync_ptsz(&memory, 4096, pool, NULL), 0);
    check("cuMemFreeAsync of it", cuMemFreeAsync(memory, PER_THREAD), 0);
    access_rights own = {1, 0, 3}, none = {1, 0, 0};
    check("cuMemPoolSetAccess", cuMemPoolSetAccess(pool, &own, 1), 0);
    check("cuMemPoolSetAccess to nothing", cuMemPoolSetAccess(pool, &none, 1), 1);
    check("cuMemGetDefaultMemPool", cuMemGetDefaultMemPool(&current, &own, 1), 0);
    check_true("it is the device's", current == first);
    check("cuMemSetMemPool", cuMemSetMemPool(&own, 1, pool), 0);
    check("cuMemGetMemPool", cuMemGetMemPool(&current, &own, 1), 0);
    check_true("it is the one that was set", current == pool);
    check("cuMemPoolTrimTo", cuMemPoolTrimTo(pool, 0), 0);
    unsigned rights = 9;
    struct { unsigned location, id; } here = {1, 0};
    check("cuMemPoolGetAccess", cuMemPoolGetAccess(&rights, pool, &here), 0);
    check("a device reaches its own pool", rights, 3);
    check("cuMemPoolDestroy", cuMemPoolDestroy(pool), 0);
    check("cuMemPoolDestroy again", cuMemPoolDestroy(pool), 1);
    check("cuDeviceGetMemPool after", cuDeviceGetMemPool(&current, 0), 0);
    check_true("the default pool is the current one again", current == first);
}

#endif
