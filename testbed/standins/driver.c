/* Drives the calls of the driver API through the real loader: return codes, bad arguments, calls before cuInit, in a
 * forked child, after exit began. One line a check (TAP); exit code 0 when all held.
 *
 * Usage: driver [data] [graphs] [kernels]    what the device is able to do: keep what is copied to it, run graphs, run code
 *        driver refused CODE                        where CUDA cannot be initialised
 * cc -o driver driver.c libcuda.so.1 -lpthread */
#define _GNU_SOURCE
#include <pthread.h>

#include "check.h"
#include "driver/api.h"
#include "driver/devices.h"
#include "driver/memory.h"
#include "driver/streams.h"
#include "driver/functions.h"
#include "driver/graphs.h"
#include "driver/code.h"
#include "driver/variants.h"

static void at_exit(void)
{
    if (is_child)
        return;
    int value = -1;
    void *context = NULL;
    address memory = 0;
    check("after exit began: cuInit", cuInit(0), 4);
    check("after exit began: cuDeviceGetCount", cuDeviceGetCount(&value), 4);
    check("after exit began: the count is untouched", value, -1);
    check("after exit began: cuCtxGetCurrent", cuCtxGetCurrent(&context), 4);
    check("after exit began: cuMemAlloc", cuMemAlloc_v2(&memory, 16), 4);
    check("after exit began: cuCtxSynchronize", cuCtxSynchronize(), 4);
    check("after exit began: cuStreamSynchronize", cuStreamSynchronize(NULL), 4);
    const struct table *private = table();
    check("after exit began: the private table", private ? private->life() : -1, 4);
    const char *text = NULL;
    check("after exit began: cuGetErrorString", cuGetErrorString(4, &text), 0);
    check_text("after exit began: its text", text, "driver shutting down");
    if (finish() != 0)
        _exit(1);
}

static void private_table(void)
{
    const struct table *private = table();
    if (!check_true("the private table is there", private != NULL))
        return;
    int count = -1, index = -1;
    uint64_t free_bytes = 0, total = 0, done = 0;
    const void *device = NULL;
    check("table: life", private->life(), 0);
    check("table: device_count", private->device_count(&count), 0);
    check_true("the guest has no fewer devices than are visible", count >= counted);
    check("table: visible", private->visible(0, &index), 0);
    check_true("an index", index >= 0 && index < count);
    check("table: visible past the end", private->visible(counted, &index), 101);
    check("table: device", private->device(index, &device), 0);
    check_true("a device's facts", device != NULL);
    check("table: device past the end", private->device(count, &device), 101);
    check("table: memory_info", private->memory_info(0, &free_bytes, &total), 0);
    check_true("free memory is no more than all", free_bytes <= total && total > 0);
    check("table: done", private->done(&done), 0);
    check_true("something has been done", done > 0);
    check("table: echo", private->echo(0), 0);

    uint64_t sent = messages(private);
    int value;
    void *current;
    for (int i = 0; i < 100; i++) {
        cuDeviceGetAttribute(&value, 16, 0);
        cuDeviceGetCount(&value);
        cuCtxGetCurrent(&current);
        cuCtxGetDevice(&value);
    }
    check("state is answered without a message", (long long)(messages(private) - sent), 0);
    struct counters before, after;
    private->counters(&before);
    private->echo(0);
    private->counters(&after);
    check("an echo is a round trip", (long long)(after.round_trips - before.round_trips), 1);
}

static void *thread(void *context)
{
    void *current = BOGUS;
    address memory = 0;
    check("in another thread: cuCtxGetCurrent", cuCtxGetCurrent(&current), 0);
    check_true("in another thread: none is current", current == NULL);
    check("in another thread: cuMemAlloc without", cuMemAlloc_v2(&memory, 16), 201);
    check("in another thread: cuCtxSetCurrent", cuCtxSetCurrent(context), 0);
    check("in another thread: cuMemAlloc", cuMemAlloc_v2(&memory, 16), 0);
    check("in another thread: cuMemFree", cuMemFree_v2(memory), 0);
    return NULL;
}

static int child_of_initialised(void)
{
    int value = -1;
    void *context = NULL;
    address memory = 0;
    if (cuInit(0) != 3)
        return 10;
    if (cuDeviceGetCount(&value) != 3)
        return 11;
    if (cuCtxGetCurrent(&context) != 3)
        return 12;
    if (cuMemAlloc_v2(&memory, 16) != 3)
        return 13;
    if (cuCtxSynchronize() != 3)
        return 14;
    const struct table *private = table();
    return private && private->life() == 3 ? 0 : 15;
}

static int child_of_fresh(void)
{
    int count = 0, status = cuInit(0);
    if (status)
        return 20 + status;
    return cuDeviceGetCount(&count) == 0 && count > 0 ? 0 : 21;
}

/* Where there is no device, or none can be opened: cuInit answers `code`, and nothing is initialised. */
static int refused(int code)
{
    int value = -1;
    void *context = NULL;
    check("refused: cuInit", cuInit(0), code);
    check("refused: cuDeviceGetCount", cuDeviceGetCount(&value), 3);
    check("refused: the count is untouched", value, -1);
    check("refused: cuCtxGetCurrent", cuCtxGetCurrent(&context), 3);
    check("refused: cuDevicePrimaryCtxRetain", cuDevicePrimaryCtxRetain(&context, 0), 3);
    check("refused: cuInit again", cuInit(0), code);
    return finish();
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc == 3 && strcmp(argv[1], "refused") == 0)
        return refused(atoi(argv[2]));
    abilities(argc, argv);
    atexit(at_exit); /* before the first call: runs after the library's own handler */

    check("a child forked before the first call", forked(child_of_fresh), 0);
    before_init();
    proc_address();
    check("cuInit", cuInit(0), 0);
    check("cuInit again", cuInit(0), 0);
    devices();
    contexts();
    void *context = NULL;
    if (!check("cuDevicePrimaryCtxRetain for what follows", cuDevicePrimaryCtxRetain(&context, 0), 0))
        return 1;
    check("cuCtxSetCurrent for what follows", cuCtxSetCurrent(context), 0);
    memory();
    host_memory();
    virtual_memory();
    streams_and_events();
    host_functions();
    pools();
    graphs();
    code();
    memory_variants();
    stream_variants();
    private_table();
    pthread_t other;
    if (pthread_create(&other, NULL, thread, context) == 0)
        pthread_join(other, NULL);

    address kept = 0;
    static unsigned char in[3000], got[3000];
    fill(in, sizeof in, 11);
    cuMemAlloc_v2(&kept, sizeof in);
    cuMemcpyHtoD_v2(kept, in, sizeof in);
    check("a forked child", forked(child_of_initialised), 0);
    check("after the child's exit: cuMemcpyDtoH", cuMemcpyDtoH_v2(got, kept, sizeof in), 0);
    same("after the child's exit: the parent's memory", in, got, sizeof in);
    check("after the child's exit: cuCtxSynchronize", cuCtxSynchronize(), 0);
    check("cuDevicePrimaryCtxReset", cuDevicePrimaryCtxReset_v2(0), 0);
    check("cuDevicePrimaryCtxReset of old", cuDevicePrimaryCtxReset(0), 0);
    return failures ? 1 : 0;
}
