/* Versions, errors, devices. Part of runtime.c. */
#ifndef VGPU_STANDINS_RUNTIME_DEVICES_H
#define VGPU_STANDINS_RUNTIME_DEVICES_H

#include "../check.h"
#include "api.h"

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
    cudaGetLastError();
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
    check("cudaDeviceSetSharedMemConfig", cudaDeviceSetSharedMemConfig(1), 0);
    check("cudaDeviceGetSharedMemConfig", cudaDeviceGetSharedMemConfig(&config), 0);
    check("cudaDeviceGetSharedMemConfig null", cudaDeviceGetSharedMemConfig(NULL), 1);
    check("cudaProfilerStart", cudaProfilerStart(), 0);
    check("cudaProfilerStop", cudaProfilerStop(), 0);
    int least = 99, greatest = 99;
    check("cudaDeviceGetStreamPriorityRange", cudaDeviceGetStreamPriorityRange(&least, &greatest), 0);
    check_true("lower is more urgent", greatest <= least && least == 0);
#if CUDA == 12
    check("cudaThreadSynchronize", cudaThreadSynchronize(), 0);
    check("cudaThreadGetLimit", cudaThreadGetLimit(&limit, 0), 0);
    check("cudaThreadSetLimit", cudaThreadSetLimit(0, limit), 0);
    check("cudaThreadSetCacheConfig", cudaThreadSetCacheConfig(0), 0);
    check("cudaThreadGetCacheConfig", cudaThreadGetCacheConfig(&config), 0);
    check("the preference that was set", config, 0);
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

#endif
