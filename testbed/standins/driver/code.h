/* Modules, libraries, kernels, launches. Part of driver.c. */
#ifndef VGPU_STANDINS_DRIVER_CODE_H
#define VGPU_STANDINS_DRIVER_CODE_H

#include "common.h"

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

#endif
