/* Before cuInit, entry points, devices, contexts. Part of driver.c. */
#ifndef VGPU_STANDINS_DRIVER_DEVICES_H
#define VGPU_STANDINS_DRIVER_DEVICES_H

#include "../check.h"
#include "api.h"

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
    unsigned cut_total = 0;
    check("cuDeviceTotalMem of old", cuDeviceTotalMem(&cut_total, 0), 0);
    check_true("as much of it as fits", cut_total != 0);
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
    check("cuDeviceGetExecAffinitySupport", cuDeviceGetExecAffinitySupport(&value, 0, 0), 0);
    check("cuDeviceGetExecAffinitySupport null", cuDeviceGetExecAffinitySupport(NULL, 0, 0), 1);
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
    check("cuDevicePrimaryCtxRelease of old", cuDevicePrimaryCtxRelease(0), 0);
    check("cuDevicePrimaryCtxRelease too often", cuDevicePrimaryCtxRelease_v2(0), 201);
    check("cuDevicePrimaryCtxSetFlags of old", cuDevicePrimaryCtxSetFlags(0, 0), 0);

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
    check("cuCtxGetDevice_v2", cuCtxGetDevice_v2(&device, context), 0);
    check("cuCtxSynchronize_v2", cuCtxSynchronize_v2(context), 0);
    check("cuCtxSetFlags", cuCtxSetFlags(4), 0);
    check("cuCtxGetFlags after", cuCtxGetFlags(&flags), 0);
    check("the flags are those that were set", flags & 7, 4);
    check("cuCtxResetPersistingL2Cache", cuCtxResetPersistingL2Cache(), 0);
    unsigned banks = 9;
    check("cuCtxSetSharedMemConfig", cuCtxSetSharedMemConfig(1), 0);
    check("cuCtxGetSharedMemConfig", cuCtxGetSharedMemConfig(&banks), 0);
    check("cuProfilerStart", cuProfilerStart(), 0);
    check("cuProfilerStop", cuProfilerStop(), 0);
    void *fourth = NULL;
    check("cuCtxCreate_v4", cuCtxCreate_v4(&fourth, NULL, 0, 0), 0);
    check("cuCtxPopCurrent of old", cuCtxPopCurrent(&popped), 0);
    check_true("it is the newest", popped == fourth);
    check("cuCtxPushCurrent of old", cuCtxPushCurrent(fourth), 0);
    check("cuCtxDestroy of the newest", cuCtxDestroy_v2(fourth), 0);
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

#endif
