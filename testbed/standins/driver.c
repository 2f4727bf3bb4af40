/* Drives the calls of the driver API through the real loader: return codes, bad arguments, calls before cuInit, in a
 * forked child, after exit began. One line a check (TAP); exit code 0 when all held.
 *
 * Usage: driver [data] [graphs] [kernels]    what the device is able to do: keep what is copied to it, run graphs, run code
 * cc -o driver driver.c libcuda.so.1 -lpthread */
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "driver_api.h"

#define BOGUS ((void *)0x123450)
#define PER_THREAD ((void *)2)

static int data, graphs_run, kernels, counted;

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

static void before_init(void)
{
    int value = -1;
    void *pointer = NULL;
    address memory = 0;
    size_t bytes = 0;
    const char *text = NULL;
    check("before cuInit: cuDriverGetVersion", cuDriverGetVersion(&value), 0);
    check_true("a driver's version", value >= 10000 && value % 10 == 0);
    check("cuDriverGetVersion null", cuDriverGetVersion(NULL), 1);
    value = -1;
    check("before cuInit: cuDeviceGetCount", cuDeviceGetCount(&value), 3);
    check("before cuInit: the count is untouched", value, -1);
    check("before cuInit: cuDeviceGet", cuDeviceGet(&value, 0), 3);
    check("before cuInit: cuCtxGetCurrent", cuCtxGetCurrent(&pointer), 3);
    check("before cuInit: cuCtxCreate", cuCtxCreate_v2(&pointer, 0, 0), 3);
    check("before cuInit: cuDevicePrimaryCtxRetain", cuDevicePrimaryCtxRetain(&pointer, 0), 3);
    check("before cuInit: cuMemAlloc", cuMemAlloc_v2(&memory, 16), 3);
    check("before cuInit: cuMemGetInfo", cuMemGetInfo_v2(&bytes, &bytes), 3);
    check("before cuInit: cuStreamCreate", cuStreamCreate(&pointer, 0), 3);
    check("before cuInit: cuCtxSynchronize", cuCtxSynchronize(), 3);
    check("before cuInit: cuGetErrorName", cuGetErrorName(100, &text), 0);
    check_text("a name", text, "CUDA_ERROR_NO_DEVICE");
    check("cuGetErrorString", cuGetErrorString(2, &text), 0);
    check_text("a text", text, "out of memory");
    check("cuGetErrorString of none", cuGetErrorString(98765, &text), 1);
    check_true("no text", text == NULL);
    check("cuGetErrorName of none", cuGetErrorName(-1, &text), 1);
    check("cuInit with flags", cuInit(1), 1);
    check("cuInit with flags initialises nothing", cuDeviceGetCount(&value), 3);
}

/* A base name, a version and flags against the entry that is to serve them. */
static void serves(const char *name, int version, uint64_t flags, void *entry)
{
    void *found = BOGUS;
    int status = 9;
    char text[100];
    snprintf(text, sizeof text, "cuGetProcAddress %s %d %d", name, version, (int)flags);
    check(text, cuGetProcAddress_v2(name, &found, version, flags, &status), 0);
    snprintf(text, sizeof text, "cuGetProcAddress %s %d %d serves", name, version, (int)flags);
    check_true(text, found == entry);
}

static void proc_address(void)
{
    void *found = BOGUS;
    int status = 9;
    serves("cuMemAlloc", 12000, 0, (void *)cuMemAlloc_v2);
    serves("cuMemAlloc", 3020, 1, (void *)cuMemAlloc_v2);
    serves("cuDeviceGetUuid", 9020, 0, (void *)cuDeviceGetUuid);
    serves("cuDeviceGetUuid", 11040, 0, (void *)cuDeviceGetUuid_v2);
    serves("cuDeviceGetUuid", 99999, 0, (void *)cuDeviceGetUuid_v2);
    serves("cuInit", 2000, 0, (void *)cuInit);
    serves("cuGetProcAddress", 11030, 0, (void *)cuGetProcAddress);
    serves("cuGetProcAddress", 12000, 0, (void *)cuGetProcAddress_v2);
    serves("cuStreamSynchronize", 12000, 0, (void *)cuStreamSynchronize);
    serves("cuStreamSynchronize", 12000, 1, (void *)cuStreamSynchronize);
    serves("cuStreamSynchronize", 12000, 2, (void *)cuStreamSynchronize_ptsz);
    serves("cuMemcpyHtoD", 12000, 2, (void *)cuMemcpyHtoD_v2_ptds);
    serves("cuMemcpyDtoH", 12000, 2, (void *)cuMemcpyDtoH_v2_ptds);
    serves("cuDeviceGet", 12000, 2, (void *)cuDeviceGet);
    serves("cuCtxCreate", 3020, 0, (void *)cuCtxCreate_v2);
    serves("cuCtxCreate", 11040, 0, (void *)cuCtxCreate_v3);
    check("cuGetProcAddress of none", cuGetProcAddress_v2("cuNoSuchCall", &found, 12000, 0, &status), 0);
    check_true("none is null", found == NULL && status == 1);
    check("cuGetProcAddress of a suffixed name", cuGetProcAddress_v2("cuMemAlloc_v2", &found, 12000, 0, &status), 0);
    check_true("a suffixed name is none", found == NULL && status == 1);
    check("cuGetProcAddress too early", cuGetProcAddress_v2("cuGraphClone", &found, 2000, 0, &status), 0);
    check_true("too early is null", found == NULL && status == 2);
    found = BOGUS;
    check("cuGetProcAddress bad flags", cuGetProcAddress_v2("cuInit", &found, 12000, 4, &status), 1);
    check_true("bad flags write nothing", found == BOGUS);
    check("cuGetProcAddress without a status", cuGetProcAddress_v2("cuInit", &found, 12000, 0, NULL), 0);
    check_true("without a status it is found", found == (void *)cuInit);
    found = BOGUS;
    check("old cuGetProcAddress of none", cuGetProcAddress("cuNoSuchCall", &found, 12000, 0), 500);
    check_true("old cuGetProcAddress of none writes nothing", found == BOGUS);
    check("old cuGetProcAddress", cuGetProcAddress("cuMemAlloc", &found, 12000, 0), 0);
    check_true("old cuGetProcAddress serves", found == (void *)cuMemAlloc_v2);

    const void *other = BOGUS;
    static const uint8_t unknown[16] = {1, 2, 3};
    check_true("cuGetExportTable of an unknown table", cuGetExportTable(&other, unknown) != 0);
    check_true("the private table", table() != NULL);
}

static void devices(void)
{
    int device = -1, value = -1;
    check("cuDeviceGetCount null", cuDeviceGetCount(NULL), 1);
    check("cuDeviceGetCount", cuDeviceGetCount(&counted), 0);
    check_true("there is a device", counted >= 1);
    check("cuDeviceGet null", cuDeviceGet(NULL, 0), 1);
    check("cuDeviceGet past the end", cuDeviceGet(&device, counted), 101);
    check("cuDeviceGet negative", cuDeviceGet(&device, -1), 101);
    check("cuDeviceGet", cuDeviceGet(&device, 0), 0);
    check("a device is its ordinal", device, 0);

    char name[256], cut[16];
    memset(cut, 0x5a, sizeof cut);
    check("cuDeviceGetName", cuDeviceGetName(name, sizeof name, 0), 0);
    check_true("a device has a name", name[0] != 0 && memchr(name, 0, sizeof name) != NULL);
    check("cuDeviceGetName into a little room", cuDeviceGetName(cut, 4, 0), 0);
    check_true("a name is cut and ended", cut[3] == 0 && cut[4] == 0x5a && strncmp(cut, name, strlen(cut)) == 0);
    check("cuDeviceGetName null", cuDeviceGetName(NULL, 16, 0), 1);
    check("cuDeviceGetName no room", cuDeviceGetName(name, 0, 0), 1);
    check("cuDeviceGetName no device", cuDeviceGetName(name, sizeof name, counted), 101);
    unsigned char uuid[16], second[16], zero[16] = {0};
    check("cuDeviceGetUuid", cuDeviceGetUuid(uuid, 0), 0);
    check("cuDeviceGetUuid_v2", cuDeviceGetUuid_v2(second, 0), 0);
    check("both are the same", memcmp(uuid, second, 16), 0);
    check_true("a UUID is not zero", memcmp(uuid, zero, 16) != 0);
    check("cuDeviceGetUuid null", cuDeviceGetUuid(NULL, 0), 1);
    check("cuDeviceGetUuid no device", cuDeviceGetUuid(uuid, counted), 101);
    size_t total = 0;
    check("cuDeviceTotalMem", cuDeviceTotalMem_v2(&total, 0), 0);
    check_true("a device has memory", total > 0);
    check("cuDeviceTotalMem null", cuDeviceTotalMem_v2(NULL, 0), 1);
    check("cuDeviceTotalMem no device", cuDeviceTotalMem_v2(&total, -1), 101);

    int major = 0, minor = -1;
    check("cuDeviceGetAttribute", cuDeviceGetAttribute(&value, 75, 0), 0);
    check("cuDeviceComputeCapability", cuDeviceComputeCapability(&major, &minor, 0), 0);
    check("both say the same", major, value);
    check("cuDeviceGetAttribute null", cuDeviceGetAttribute(NULL, 75, 0), 1);
    check("cuDeviceGetAttribute unknown", cuDeviceGetAttribute(&value, 9999, 0), 1);
    check("cuDeviceGetAttribute 0", cuDeviceGetAttribute(&value, 0, 0), 1);
    check("cuDeviceGetAttribute no device", cuDeviceGetAttribute(&value, 75, counted), 101);
    int properties[14];
    check("cuDeviceGetProperties", cuDeviceGetProperties(properties, 0), 0);
    check("its warp", properties[9], 32);
    char bus[32];
    int parts[3];
    check("cuDeviceGetPCIBusId", cuDeviceGetPCIBusId(bus, sizeof bus, 0), 0);
    check("a PCI address is parsed", sscanf(bus, "%x:%x:%x.0", &parts[0], &parts[1], &parts[2]), 3);
    const int ids[3] = {50, 33, 34};
    const char *names[3] = {"attribute of the domain", "attribute of the bus", "attribute of the device"};
    for (int i = 0; i < 3; i++) {
        cuDeviceGetAttribute(&value, ids[i], 0);
        check(names[i], value, parts[i]);
    }
    check("cuDeviceGetPCIBusId null", cuDeviceGetPCIBusId(NULL, 32, 0), 1);
    check("cuDeviceGetByPCIBusId", cuDeviceGetByPCIBusId(&device, bus), 0);
    check("it is device 0", device, 0);
    check_either("cuDeviceGetByPCIBusId of none", cuDeviceGetByPCIBusId(&device, "7fff:7f:1f.0"), 101, 1);
    check("cuDeviceGetByPCIBusId null", cuDeviceGetByPCIBusId(&device, NULL), 1);
    check("cuDeviceCanAccessPeer itself", cuDeviceCanAccessPeer(&value, 0, 0), 0);
    check("a device is no peer of itself", value, 0);
    check("cuDeviceCanAccessPeer no device", cuDeviceCanAccessPeer(&value, 0, counted), 101);
    check("cuDeviceGetP2PAttribute no device", cuDeviceGetP2PAttribute(&value, 1, 0, counted), 101);
}

static void contexts(void)
{
    void *primary = NULL, *again = NULL, *context = BOGUS, *current = BOGUS, *popped = NULL;
    unsigned flags = 99, version = 0;
    int active = 9, device = -1;
    check("cuCtxGetCurrent", cuCtxGetCurrent(&current), 0);
    check_true("none is current", current == NULL);
    check("cuCtxGetCurrent null", cuCtxGetCurrent(NULL), 1);
    check("without a context: cuCtxGetDevice", cuCtxGetDevice(&device), 201);
    check("without a context: cuCtxSynchronize", cuCtxSynchronize(), 201);
    address memory = 0;
    check("without a context: cuMemAlloc", cuMemAlloc_v2(&memory, 16), 201);
    check("without a context: cuStreamCreate", cuStreamCreate(&current, 0), 201);
    check("without a context: cuCtxPopCurrent", cuCtxPopCurrent_v2(&popped), 201);
    check("cuDevicePrimaryCtxGetState", cuDevicePrimaryCtxGetState(0, &flags, &active), 0);
    check("the primary context is not active", active, 0);
    check("cuDevicePrimaryCtxSetFlags", cuDevicePrimaryCtxSetFlags_v2(0, 1), 0);
    check("cuDevicePrimaryCtxSetFlags unknown", cuDevicePrimaryCtxSetFlags_v2(0, 0x10000), 1);
    check("cuDevicePrimaryCtxSetFlags no device", cuDevicePrimaryCtxSetFlags_v2(counted, 0), 101);
    check("cuDevicePrimaryCtxRetain null", cuDevicePrimaryCtxRetain(NULL, 0), 1);
    check("cuDevicePrimaryCtxRetain no device", cuDevicePrimaryCtxRetain(&primary, counted), 101);
    check("cuDevicePrimaryCtxRetain", cuDevicePrimaryCtxRetain(&primary, 0), 0);
    check("cuDevicePrimaryCtxRetain again", cuDevicePrimaryCtxRetain(&again, 0), 0);
    check_true("there is one primary context", primary == again && primary);
    check("cuDevicePrimaryCtxGetState after", cuDevicePrimaryCtxGetState(0, &flags, &active), 0);
    check("the primary context is active", active, 1);
    check("its flags are those that were set", flags, 1);
    check("cuDevicePrimaryCtxRelease", cuDevicePrimaryCtxRelease_v2(0), 0);
    check("cuDevicePrimaryCtxRelease the last", cuDevicePrimaryCtxRelease_v2(0), 0);
    check("cuDevicePrimaryCtxRelease too often", cuDevicePrimaryCtxRelease_v2(0), 201);
    cuDevicePrimaryCtxSetFlags_v2(0, 0);

    check("cuCtxCreate null", cuCtxCreate_v2(NULL, 0, 0), 1);
    check("cuCtxCreate no device", cuCtxCreate_v2(&context, 0, counted), 101);
    check("cuCtxCreate unknown flags", cuCtxCreate_v2(&context, 0x10000, 0), 1);
    check("cuCtxCreate", cuCtxCreate_v2(&context, 0, 0), 0);
    check("cuCtxGetCurrent after", cuCtxGetCurrent(&current), 0);
    check_true("what is made is current", current == context && context);
    check("cuCtxGetDevice", cuCtxGetDevice(&device), 0);
    check("it is device 0", device, 0);
    check("cuCtxGetFlags", cuCtxGetFlags(&flags), 0);
    check("cuCtxGetApiVersion", cuCtxGetApiVersion(context, &version), 0);
    check_true("an API version", version >= 3020);
    uint64_t id = 0, other_id = 0;
    check("cuCtxGetId", cuCtxGetId(context, &id), 0);
    void *other = NULL;
    check("cuCtxCreate_v3", cuCtxCreate_v3(&other, NULL, 0, 0, 0), 0);
    check("cuCtxGetId other", cuCtxGetId(other, &other_id), 0);
    check_true("contexts have numbers of their own", id != other_id);
    check("cuCtxPopCurrent", cuCtxPopCurrent_v2(&popped), 0);
    check_true("the newest comes first", popped == other);
    check("cuCtxPushCurrent", cuCtxPushCurrent_v2(other), 0);
    cuCtxGetCurrent(&current);
    check_true("what is pushed is current", current == other);
    check("cuCtxPushCurrent of none", cuCtxPushCurrent_v2(BOGUS), 201);
    check("cuCtxSetCurrent of none", cuCtxSetCurrent(BOGUS), 201);
    cuCtxPopCurrent_v2(&popped);
    check("cuCtxSetCurrent", cuCtxSetCurrent(context), 0);
    check("cuCtxDestroy", cuCtxDestroy_v2(other), 0);
    check_either("cuCtxDestroy again", cuCtxDestroy_v2(other), 709, 201);
    check_either("cuCtxSetCurrent of what was destroyed", cuCtxSetCurrent(other), 709, 201);
    size_t limit = 0, stack = 0;
    check("cuCtxGetLimit", cuCtxGetLimit(&limit, 0), 0);
    check_true("a stack has a size", limit > 0);
    check("cuCtxSetLimit", cuCtxSetLimit(0, limit / 2), 0);
    check("cuCtxGetLimit after", cuCtxGetLimit(&stack, 0), 0);
    check_true("the limit is no less than what was set", stack >= limit / 2);
    check("cuCtxGetLimit unknown", cuCtxGetLimit(&limit, 99), 215);
    check("cuCtxGetLimit null", cuCtxGetLimit(NULL, 0), 1);
    unsigned config = 9;
    check("cuCtxSetCacheConfig", cuCtxSetCacheConfig(1), 0);
    check("cuCtxGetCacheConfig", cuCtxGetCacheConfig(&config), 0);
    check("the cache preference is what was set", config, 1);
    int least = 9, greatest = 9;
    check("cuCtxGetStreamPriorityRange", cuCtxGetStreamPriorityRange(&least, &greatest), 0);
    check_true("lower is more urgent", least == 0 && greatest <= 0);
    check("cuCtxEnablePeerAccess itself", cuCtxEnablePeerAccess(context, 0), 201);
    check("cuCtxDisablePeerAccess not enabled", cuCtxDisablePeerAccess(context), 705);
    check("cuCtxSynchronize", cuCtxSynchronize(), 0);

    /* Memory of a context goes with it. */
    size_t before = 0, after = 0, total = 0;
    cuMemGetInfo_v2(&before, &total);
    check("cuMemAlloc in it", cuMemAlloc_v2(&memory, 8 << 20), 0);
    check("cuCtxDestroy with memory", cuCtxDestroy(context), 0);
    check("without a context again", cuCtxGetDevice(&device), 201);
    cuCtxCreate_v2(&context, 0, 0);
    check("the memory went with its context", cuMemFree_v2(memory), 1);
    if (data) {
        cuMemGetInfo_v2(&after, &total);
        check("what it had is free", (long long)after, (long long)before);
    }
    cuCtxDestroy_v2(context);
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
    check("cuMemcpy2DAsync", cuMemcpy2DAsync_v2(&from, NULL), 0);
    cuStreamSynchronize(NULL);
    for (int row = 0; row < 7; row++) {
        memset(rows[row], 5, 40);
        memset(rows[row] + 40, 6, 20);
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
    check("cuMemRelease", cuMemRelease(handle), 0);
    static unsigned char in[1000], got[1000];
    fill(in, sizeof in, 8);
    check("cuMemcpyHtoD to it", cuMemcpyHtoD_v2(start, in, sizeof in), 0);
    check("cuMemcpyDtoH from it", cuMemcpyDtoH_v2(got, start, sizeof in), 0);
    same("mapped bytes come back", in, got, sizeof in);
    check("cuMemUnmap", cuMemUnmap(start, granularity), 0);
    check("cuMemAddressFree", cuMemAddressFree(start, 4 * granularity), 0);
    check("cuMemAddressFree again", cuMemAddressFree(start, 4 * granularity), 1);
}

static void streams_and_events(void)
{
    void *stream = NULL, *other = NULL, *event = NULL, *later = NULL, *context = NULL, *current = NULL;
    unsigned flags = 99;
    int priority = 99, least = 9, greatest = 9;
    uint64_t id = 0, second = 0;
    cuCtxGetStreamPriorityRange(&least, &greatest);
    check("cuStreamCreate null", cuStreamCreate(NULL, 0), 1);
    check("cuStreamCreate bad flags", cuStreamCreate(&stream, 77), 1);
    check("cuStreamCreate", cuStreamCreate(&stream, 0), 0);
    check("cuStreamCreateWithPriority", cuStreamCreateWithPriority(&other, 1, -1), 0);
    check("cuStreamGetFlags", cuStreamGetFlags(other, &flags), 0);
    check("the flags are those of its creation", flags, 1);
    check("cuStreamGetPriority", cuStreamGetPriority(other, &priority), 0);
    check("the priority is that of its creation, within the range", priority, greatest < -1 ? -1 : greatest);
    check("cuStreamGetId", cuStreamGetId(stream, &id), 0);
    check("cuStreamGetId other", cuStreamGetId(other, &second), 0);
    check_true("numbers of streams differ", id != second);
    check("cuStreamGetCtx", cuStreamGetCtx(stream, &context), 0);
    cuCtxGetCurrent(&current);
    check_true("it is the current one", context == current);
    check("cuStreamQuery", cuStreamQuery(stream), 0);
    check("cuStreamQuery of none", cuStreamQuery(BOGUS), 400);
    check("cuStreamSynchronize", cuStreamSynchronize(stream), 0);
    check("cuStreamSynchronize of none", cuStreamSynchronize(BOGUS), 400);
    check("cuStreamSynchronize legacy", cuStreamSynchronize((void *)1), 0);
    check("cuStreamGetFlags of none", cuStreamGetFlags(BOGUS, &flags), 400);

    check("cuEventCreate null", cuEventCreate(NULL, 0), 1);
    check("cuEventCreate bad flags", cuEventCreate(&event, 0x100), 1);
    check("cuEventCreate", cuEventCreate(&event, 0), 0);
    check("cuEventCreate another", cuEventCreate(&later, 0), 0);
    check("cuEventQuery not recorded", cuEventQuery(event), 0);
    float milliseconds = -1;
    check("cuEventElapsedTime not recorded", cuEventElapsedTime(&milliseconds, event, later), 400);
    check("cuEventRecord", cuEventRecord(event, stream), 0);
    address memory = 0;
    cuMemAlloc_v2(&memory, 1 << 20);
    check("work between", cuMemsetD8Async(memory, 0, 1 << 20, stream), 0);
    check("cuEventRecord another", cuEventRecord(later, stream), 0);
    check("cuStreamWaitEvent", cuStreamWaitEvent(other, later, 0), 0);
    check("cuStreamWaitEvent of none", cuStreamWaitEvent(other, BOGUS, 0), 400);
    check("cuStreamWaitEvent bad flags", cuStreamWaitEvent(other, later, 0x100), 1);
    check("cuEventSynchronize", cuEventSynchronize(later), 0);
    check("cuEventQuery", cuEventQuery(later), 0);
    check("cuEventElapsedTime", cuEventElapsedTime(&milliseconds, event, later), 0);
    check_true("time goes forward", milliseconds >= 0 && milliseconds < 60000);
    check("cuEventElapsedTime null", cuEventElapsedTime(NULL, event, later), 1);
    check("cuEventRecord of none", cuEventRecord(BOGUS, stream), 400);
    check("cuEventDestroy", cuEventDestroy_v2(event), 0);
    check("cuEventDestroy again", cuEventDestroy_v2(event), 400);
    check("cuEventQuery of none", cuEventQuery(event), 400);
    cuEventDestroy_v2(later);
    cuStreamSynchronize(other);
    check("cuStreamDestroy", cuStreamDestroy_v2(stream), 0);
    check("cuStreamDestroy again", cuStreamDestroy_v2(stream), 400);
    check("cuStreamDestroy other", cuStreamDestroy_v2(other), 0);
    check("cuStreamDestroy of stream 0", cuStreamDestroy_v2(NULL), 400);
    cuMemFree_v2(memory);
}

static void graphs(void)
{
    void *stream = NULL, *graph = NULL, *exec = NULL, *clone = NULL;
    unsigned capturing = 99, kind = 99;
    uint64_t id = 0;
    size_t count = 0;
    address memory = 0;
    static unsigned char in[1000], got[1000];
    cuStreamCreate(&stream, 1);
    cuMemAlloc_v2(&memory, 4096);
    cuMemsetD8_v2(memory, 0, 4096);
    check("cuStreamBeginCapture of stream 0", cuStreamBeginCapture_v2(NULL, 0), 900);
    check("cuStreamBeginCapture", cuStreamBeginCapture_v2(stream, 2), 0);
    check("cuStreamBeginCapture again", cuStreamBeginCapture_v2(stream, 2), 401);
    check("cuStreamIsCapturing", cuStreamIsCapturing(stream, &capturing), 0);
    check("it is", capturing, 1);
    check("captured fill", cuMemsetD8Async(memory, 0x21, 1000, stream), 0);
    check("cuStreamGetCaptureInfo", cuStreamGetCaptureInfo_v2(stream, &capturing, &id, &graph, NULL, &count), 0);
    check_true("the capture has a number, a graph and a last node", capturing == 1 && id && graph && count == 1);
    check("captured copy", cuMemcpyDtoDAsync_v2(memory + 1000, memory, 1000, stream), 0);
    check("cuStreamEndCapture", cuStreamEndCapture(stream, &graph), 0);
    check("cuGraphGetNodes", cuGraphGetNodes(graph, NULL, &count), 0);
    check("two nodes", (long long)count, 2);
    void *nodes[2] = {NULL, NULL};
    check("cuGraphGetNodes into room", cuGraphGetNodes(graph, nodes, &count), 0);
    check("cuGraphNodeGetType", cuGraphNodeGetType(nodes[0], &kind), 0);
    check_true("a fill or a copy", kind == 1 || kind == 2);
    check("cuGraphClone", cuGraphClone(&clone, graph), 0);
    if (graphs_run) {
        check("cuGraphInstantiate", cuGraphInstantiateWithFlags(&exec, clone, 0), 0);
        check("cuGraphLaunch", cuGraphLaunch(exec, stream), 0);
        check("cuStreamSynchronize", cuStreamSynchronize(stream), 0);
        check("cuMemcpyDtoH after the launch", cuMemcpyDtoH_v2(got, memory + 1000, 1000), 0);
        memset(in, 0x21, sizeof in);
        same("both nodes have been done", in, got, 1000);
        check("cuGraphExecDestroy", cuGraphExecDestroy(exec), 0);
        check_either("cuGraphExecDestroy again", cuGraphExecDestroy(exec), 400, 1);
    } else {
        skip("instances of graphs", "the device runs none");
    }
    check("cuGraphDestroy", cuGraphDestroy(graph), 0);
    check_either("cuGraphDestroy again", cuGraphDestroy(graph), 400, 1);
    check("cuGraphDestroy of the clone", cuGraphDestroy(clone), 0);
    check("cuStreamBeginCapture for a call that is not allowed", cuStreamBeginCapture_v2(stream, 0), 0);
    check("cuStreamSynchronize in a capture", cuStreamSynchronize(stream), 900);
    check("cuStreamEndCapture after it", cuStreamEndCapture(stream, &graph), 901);
    cuMemFree_v2(memory);
    cuStreamDestroy_v2(stream);
}

static void code(void)
{
    void *module = NULL, *function = NULL, *library = NULL, *kernel = NULL;
    static struct fatbin fatbin;
    static struct fatbin_wrapper wrapper;
    static const char garbage[256] = "this is no code";
    fatbin_make(&fatbin, PTX);
    fatbin_wrap(&wrapper, &fatbin);
    check("cuModuleLoadData null", cuModuleLoadData(NULL, PTX), 1);
    check("cuModuleLoadData of null", cuModuleLoadData(&module, NULL), 1);
    int status = cuModuleLoadData(&module, garbage);
    check_true("cuModuleLoadData of garbage", status == 200 || status == 218);
    check("cuModuleUnload of none", cuModuleUnload(BOGUS), 400);
    check("cuModuleGetFunction of none", cuModuleGetFunction(&function, BOGUS, "hundred"), 400);
    check_either("cuLibraryGetKernel of none", cuLibraryGetKernel(&kernel, BOGUS, "hundred"), 400, 1);
    check("cuLibraryUnload of none", cuLibraryUnload(BOGUS), 400);
    uint64_t parameters[13] = {0};
    void *args[13];
    for (int i = 0; i < 13; i++)
        args[i] = &parameters[i];
    check("cuLaunchKernel of none", cuLaunchKernel(BOGUS, 1, 1, 1, 1, 1, 1, 0, NULL, args, NULL), 400);
    int value = -1;
    check("cuFuncGetAttribute of none", cuFuncGetAttribute(&value, 0, BOGUS), 400);

    status = cuModuleLoadData(&module, PTX);
    if (!kernels) {
        skip("modules, functions, launches", "the device runs no code");
        check_either("cuModuleLoadData where there is no code", status, 209, 801);
        return;
    }
    check("cuModuleLoadData of PTX", status, 0);
    check("cuModuleGetFunction", cuModuleGetFunction(&function, module, "hundred"), 0);
    check("cuModuleGetFunction null", cuModuleGetFunction(NULL, module, "hundred"), 1);
    check("cuModuleGetFunction of null", cuModuleGetFunction(&function, module, NULL), 1);
    if (data)
        check("cuModuleGetFunction of a missing one", cuModuleGetFunction(&kernel, module, "missing"), 500);
    check("cuFuncGetAttribute", cuFuncGetAttribute(&value, 0, function), 0);
    check_true("a kernel has a limit of threads", value > 0 && value <= 1024);
    check("cuFuncGetAttribute unknown", cuFuncGetAttribute(&value, 99, function), 1);
    check("cuFuncSetAttribute", cuFuncSetAttribute(function, 8, 1024), 0);
    check("cuFuncSetAttribute of what cannot be set", cuFuncSetAttribute(function, 4, 1), 1);
    check("cuFuncSetCacheConfig", cuFuncSetCacheConfig(function, 1), 0);
    int blocks = -1;
    check("cuOccupancyMaxActiveBlocksPerMultiprocessor", cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, 64, 0), 0);
    check_true("a multiprocessor holds a block", blocks >= 1);
    check("cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags",
          cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&blocks, function, 64, 0, 0), 0);
    check("cuOccupancyMaxActiveBlocksPerMultiprocessor null", cuOccupancyMaxActiveBlocksPerMultiprocessor(NULL, function, 64, 0), 1);

    check("cuLaunchKernel", cuLaunchKernel(function, 2, 1, 1, 64, 1, 1, 0, NULL, args, NULL), 0);
    char packed[100] = {0};
    size_t packed_bytes = sizeof packed;
    void *extra[] = {(void *)1, packed, (void *)2, &packed_bytes, NULL};
    check("cuLaunchKernel with packed parameters", cuLaunchKernel(function, 2, 1, 1, 64, 1, 1, 0, NULL, NULL, extra), 0);
    launch_config config = {{2, 1, 1}, {64, 1, 1}, 0, NULL, NULL, 0};
    check("cuLaunchKernelEx", cuLaunchKernelEx(&config, function, args, NULL), 0);
    check("cuLaunchKernelEx null", cuLaunchKernelEx(NULL, function, args, NULL), 1);
    check("cuLaunchKernel without a grid", cuLaunchKernel(function, 0, 1, 1, 64, 1, 1, 0, NULL, args, NULL), 1);
    check("cuLaunchKernel without a block", cuLaunchKernel(function, 1, 1, 1, 0, 1, 1, 0, NULL, args, NULL), 1);
    check("cuLaunchKernel of too large a block", cuLaunchKernel(function, 1, 1, 1, 4096, 1, 1, 0, NULL, args, NULL), 1);
    check("cuLaunchKernel in none", cuLaunchKernel(function, 1, 1, 1, 64, 1, 1, 0, BOGUS, args, NULL), 400);
    check("cuCtxSynchronize", cuCtxSynchronize(), 0);
    if (data) {
        static unsigned words[100], got[100];
        address memory = 0, variable = 0;
        size_t bytes = 0;
        unsigned n = 100, number = 5;
        void *adder = NULL;
        for (unsigned i = 0; i < n; i++)
            words[i] = i * 3;
        cuMemAlloc_v2(&memory, sizeof words);
        cuMemcpyHtoD_v2(memory, words, sizeof words);
        void *add[] = {&memory, &n, &number};
        check("cuModuleGetFunction of the adder", cuModuleGetFunction(&adder, module, "add"), 0);
        check("a launch that computes", cuLaunchKernel(adder, 2, 1, 1, 64, 1, 1, 0, NULL, add, NULL), 0);
        check("its result", cuMemcpyDtoH_v2(got, memory, sizeof words), 0);
        for (unsigned i = 0; i < n; i++)
            words[i] += number;
        check("the sums are right", memcmp(words, got, sizeof words), 0);
        cuMemFree_v2(memory);
        check("cuModuleGetGlobal", cuModuleGetGlobal_v2(&variable, &bytes, module, "table"), 0);
        check("its size", (long long)bytes, 16);
        check("cuModuleGetGlobal of none", cuModuleGetGlobal_v2(&variable, &bytes, module, "missing"), 500);
    }
    check("cuModuleUnload", cuModuleUnload(module), 0);
    check("cuModuleUnload again", cuModuleUnload(module), 400);
    check("cuLaunchKernel of what was unloaded", cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, args, NULL), 400);
    check("cuModuleLoadFatBinary", cuModuleLoadFatBinary(&module, &wrapper), 0);
    check("cuModuleGetFunction from it", cuModuleGetFunction(&function, module, "hundred"), 0);
    check("cuModuleUnload it", cuModuleUnload(module), 0);
    check("cuModuleLoadDataEx", cuModuleLoadDataEx(&module, &fatbin, 0, NULL, NULL), 0);
    check("cuModuleUnload that", cuModuleUnload(module), 0);

    check("cuLibraryLoadData", cuLibraryLoadData(&library, &fatbin, NULL, NULL, 0, NULL, NULL, 0), 0);
    check("cuLibraryLoadData of null", cuLibraryLoadData(&library, NULL, NULL, NULL, 0, NULL, NULL, 0), 1);
    check("cuLibraryGetKernel", cuLibraryGetKernel(&kernel, library, "hundred"), 0);
    check("cuKernelGetFunction", cuKernelGetFunction(&function, kernel), 0);
    check("cuKernelGetAttribute", cuKernelGetAttribute(&value, 0, kernel, 0), 0);
    check("cuKernelGetAttribute no device", cuKernelGetAttribute(&value, 0, kernel, counted), 101);
    check("cuKernelSetAttribute", cuKernelSetAttribute(8, 2048, kernel, 0), 0);
    check("cuLaunchKernel of a kernel", cuLaunchKernel(kernel, 2, 1, 1, 64, 1, 1, 0, NULL, args, NULL), 0);
    check("cuLaunchKernel of its function", cuLaunchKernel(function, 2, 1, 1, 64, 1, 1, 0, NULL, args, NULL), 0);
    check("cuCtxSynchronize after them", cuCtxSynchronize(), 0);
    check("cuLibraryUnload", cuLibraryUnload(library), 0);
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
    is_child = 1;
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
    is_child = 1;
    int count = 0, status = cuInit(0);
    if (status)
        return 20 + status;
    return cuDeviceGetCount(&count) == 0 && count > 0 ? 0 : 21;
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    data = has(argc, argv, "data");
    graphs_run = has(argc, argv, "graphs");
    kernels = has(argc, argv, "kernels");
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
    graphs();
    code();
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
    return failures ? 1 : 0;
}
