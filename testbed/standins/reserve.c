/* What GGML's pools do, for many contexts in one process: each reserves 32 GiB of addresses and maps memory where it
 * needs some. One line a check (TAP); exit code 0 when all held.
 *
 * Usage: reserve             on a device with virtual memory management
 *        reserve until-full  the same, and then reserves until it is refused
 *        reserve none        on a device without
 * cc -o reserve reserve.c libcuda.so.1 */
#include <string.h>

#include "check.h"

typedef unsigned long long address;
typedef unsigned long long handle;

struct location {
    int kind, id;
};
struct properties {
    int kind, handle_types;
    struct location location;
    void *win32;
    unsigned char flags[8];
};
struct rights {
    struct location location;
    int flags;
};

int cuInit(unsigned flags);
int cuDeviceGetAttribute(int *value, int attribute, int device);
int cuDevicePrimaryCtxRetain(void **context, int device);
int cuCtxSetCurrent(void *context);
int cuCtxSynchronize(void);
int cuMemAddressReserve(address *pointer, size_t bytes, size_t alignment, address wish, unsigned long long flags);
int cuMemAddressFree(address pointer, size_t bytes);
int cuMemCreate(handle *memory, size_t bytes, const struct properties *properties, unsigned long long flags);
int cuMemRelease(handle memory);
int cuMemMap(address pointer, size_t bytes, size_t offset, handle memory, unsigned long long flags);
int cuMemUnmap(address pointer, size_t bytes);
int cuMemSetAccess(address pointer, size_t bytes, const struct rights *rights, size_t count);
int cuMemAlloc_v2(address *pointer, size_t bytes);
int cuMemFree_v2(address pointer);
int cuMemcpyHtoD_v2(address destination, const void *source, size_t bytes);
int cuMemcpyDtoH_v2(void *destination, address source, size_t bytes);
int cuMemcpyDtoD_v2(address destination, address source, size_t bytes);

/* CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED */
enum { VIRTUAL_MEMORY_MANAGEMENT = 102 };
enum { OUT_OF_MEMORY = 2, NOT_SUPPORTED = 801 };
enum { CONTEXTS = 24, ROUNDS = 3, MOST = 64 };

static const size_t pool = 32ULL << 30;
static const size_t granule = 2 << 20;

static const struct properties on_device = {.kind = 1, .location = {1, 0}};
static const struct rights read_write = {{1, 0}, 3};

/* A piece of memory at the start of a pool, and one at its end. */
static void grow(address start)
{
    handle memory = 0;
    for (int end = 0; end < 2; end++) {
        address at = end ? start + pool - granule : start;
        check("cuMemCreate", cuMemCreate(&memory, granule, &on_device, 0), 0);
        check("cuMemMap", cuMemMap(at, granule, 0, memory, 0), 0);
        check("cuMemRelease", cuMemRelease(memory), 0);
        check("cuMemSetAccess", cuMemSetAccess(at, granule, &read_write, 1), 0);
    }
}

static void end(address start)
{
    check("cuMemUnmap at the start", cuMemUnmap(start, granule), 0);
    check("cuMemUnmap at the end", cuMemUnmap(start + pool - granule, granule), 0);
    check("cuMemAddressFree", cuMemAddressFree(start, pool), 0);
}

static void contexts(int round)
{
    address pools[CONTEXTS] = {0};
    for (int i = 0; i < CONTEXTS; i++) {
        if (!check("cuMemAddressReserve", cuMemAddressReserve(&pools[i], pool, 0, 0, 0), 0))
            return;
        for (int other = 0; other < i; other++)
            if (pools[i] < pools[other] + pool && pools[other] < pools[i] + pool)
                check_true("two pools are apart", 0);
        grow(pools[i]);
        int number = 1000 * round + i;
        check("to the pool", cuMemcpyHtoD_v2(pools[i] + 64, &number, sizeof number), 0);
    }
    for (int i = 0; i < CONTEXTS; i++) {
        int number = -1;
        address there = pools[i] + pool - 64;
        check("within the pool", cuMemcpyDtoD_v2(there, pools[i] + 64, sizeof number), 0);
        check("from the pool", cuMemcpyDtoH_v2(&number, there, sizeof number), 0);
        check("what is in the pool", number, 1000 * round + i);
    }
    for (int i = 0; i < CONTEXTS; i++)
        end(pools[i]);
}

static void until_full(void)
{
    address pools[MOST] = {0};
    int count = 0, status = 0;
    while (count < MOST && (status = cuMemAddressReserve(&pools[count], pool, 0, 0, 0)) == 0)
        count++;
    check("the end of addresses", status, OUT_OF_MEMORY);
    check_true("there were enough", count >= CONTEXTS);
    address memory = 0;
    check("cuMemAlloc where all is reserved", cuMemAlloc_v2(&memory, 64 << 20), 0);
    check("cuMemFree", cuMemFree_v2(memory), 0);
    for (int i = 0; i < count; i++)
        check("cuMemAddressFree", cuMemAddressFree(pools[i], pool), 0);
    check("and again", cuMemAddressReserve(&pools[0], pool, 0, 0, 0), 0);
    check("cuMemAddressFree", cuMemAddressFree(pools[0], pool), 0);
}

static void none(void)
{
    address pointer = 0;
    for (int i = 0; i < CONTEXTS; i++)
        check("cuMemAddressReserve without", cuMemAddressReserve(&pointer, pool, 0, 0, 0), NOT_SUPPORTED);
}

int main(int count, char **words)
{
    const char *word = count > 1 ? words[1] : "";
    int manages = -1, without = !strcmp(word, "none");
    void *context = NULL;
    check("cuInit", cuInit(0), 0);
    check("cuDeviceGetAttribute", cuDeviceGetAttribute(&manages, VIRTUAL_MEMORY_MANAGEMENT, 0), 0);
    check("whether it manages virtual memory", manages, !without);
    check("cuDevicePrimaryCtxRetain", cuDevicePrimaryCtxRetain(&context, 0), 0);
    check("cuCtxSetCurrent", cuCtxSetCurrent(context), 0);
    if (without) {
        none();
        return finish();
    }
    for (int round = 0; round < ROUNDS; round++)
        contexts(round);
    if (!strcmp(word, "until-full"))
        until_full();
    check("cuCtxSynchronize", cuCtxSynchronize(), 0);
    return finish();
}
