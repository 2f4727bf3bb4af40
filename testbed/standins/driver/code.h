/* Modules, libraries, kernels, launches. Part of driver.c. */
#ifndef VGPU_STANDINS_DRIVER_CODE_H
#define VGPU_STANDINS_DRIVER_CODE_H

#include "../check.h"
#include "api.h"

/* Launches as nodes of graphs. */
static void kernel_nodes(void *function, void **args)
{
    kernel_node params = {function, {2, 1, 1}, {64, 1, 1}, 0, args, NULL, NULL, NULL}, read_back;
    void *graph = NULL, *exec = NULL, *node = NULL, *another = NULL;
    cuGraphCreate(&graph, 0);
    check("cuGraphAddKernelNode", cuGraphAddKernelNode_v2(&node, graph, NULL, 0, &params), 0);
    check("cuGraphAddKernelNode of old", cuGraphAddKernelNode(&another, graph, &node, 1, &params), 0);
    check("cuGraphAddKernelNode null", cuGraphAddKernelNode_v2(&another, graph, &node, 1, NULL), 1);
    check("cuGraphKernelNodeGetParams", cuGraphKernelNodeGetParams_v2(node, &read_back), 0);
    check_true("the node's function and shape", read_back.function == function && read_back.grid[0] == 2);
    check("cuGraphKernelNodeGetParams of old", cuGraphKernelNodeGetParams(another, &read_back), 0);
    params.grid[0] = 3;
    check("cuGraphKernelNodeSetParams", cuGraphKernelNodeSetParams_v2(node, &params), 0);
    check("cuGraphKernelNodeSetParams of old", cuGraphKernelNodeSetParams(another, &params), 0);
    cuGraphKernelNodeGetParams_v2(another, &read_back);
    check("the node's new shape", read_back.grid[0], 3);
    check("cuGraphInstantiate of launches", cuGraphInstantiateWithFlags(&exec, graph, 0), 0);
    params.grid[0] = 4;
    check("cuGraphExecKernelNodeSetParams", cuGraphExecKernelNodeSetParams_v2(exec, node, &params), 0);
    check("cuGraphExecKernelNodeSetParams of old", cuGraphExecKernelNodeSetParams(exec, another, &params), 0);
    check("cuGraphLaunch of launches", cuGraphLaunch(exec, NULL), 0);
    check("cuCtxSynchronize after it", cuCtxSynchronize(), 0);
    cuGraphExecDestroy(exec);
    cuGraphDestroy(graph);
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
    const char *name = NULL;
    void *owner = NULL;
    size_t count = 0, offset = 0, width = 0;
    int loaded = -1, mode = -1;
    check("cuFuncGetName", cuFuncGetName(&name, function), 0);
    check_text("a function's name", name, "hundred");
    check("cuFuncGetModule", cuFuncGetModule(&owner, function), 0);
    check_true("a function's module", owner == module);
    check("cuFuncGetParamCount", cuFuncGetParamCount(function, &count), 0);
    check("a function's parameters", (long long)count, 13);
    check("cuFuncGetParamInfo", cuFuncGetParamInfo(function, 12, &offset, &width), 0);
    check_true("the last of them", offset == 96 && width == 4);
    check("cuFuncGetParamInfo past the end", cuFuncGetParamInfo(function, 13, &offset, &width), 1);
    check("cuFuncLoad", cuFuncLoad(function), 0);
    check("cuFuncIsLoaded", cuFuncIsLoaded(&loaded, function), 0);
    check("a function is loaded", loaded, 1);
    check("cuModuleGetLoadingMode", cuModuleGetLoadingMode(&mode), 0);
    unsigned functions = 0;
    void *all[2] = {NULL, NULL};
    check("cuModuleGetFunctionCount", cuModuleGetFunctionCount(&functions, module), 0);
    check("two functions", functions, 2);
    check("cuModuleEnumerateFunctions", cuModuleEnumerateFunctions(all, 2, module), 0);
    check_true("both are there", all[0] && all[1]);
    int blocks = -1;
    check("cuOccupancyMaxActiveBlocksPerMultiprocessor", cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, 64, 0), 0);
    check_true("a multiprocessor holds a block", blocks >= 1);
    check("cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags",
          cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&blocks, function, 64, 0, 0), 0);
    check("cuOccupancyMaxActiveBlocksPerMultiprocessor null", cuOccupancyMaxActiveBlocksPerMultiprocessor(NULL, function, 64, 0), 1);

    int grid = -1, block = -1;
    check("cuOccupancyMaxPotentialBlockSize", cuOccupancyMaxPotentialBlockSize(&grid, &block, function, NULL, 0, 0), 0);
    check_true("a block and a grid", grid >= 1 && block >= 1);
    check("cuOccupancyMaxPotentialBlockSizeWithFlags",
          cuOccupancyMaxPotentialBlockSizeWithFlags(&grid, &block, function, NULL, 0, 0, 0), 0);

    check("cuLaunchKernel", cuLaunchKernel(function, 2, 1, 1, 64, 1, 1, 0, NULL, args, NULL), 0);
    check("cuLaunchKernel_ptsz", cuLaunchKernel_ptsz(function, 2, 1, 1, 64, 1, 1, 0, NULL, args, NULL), 0);
    int cooperative = 0;
    cuDeviceGetAttribute(&cooperative, 95, 0);
    check("cuLaunchCooperativeKernel", cuLaunchCooperativeKernel(function, 2, 1, 1, 64, 1, 1, 0, NULL, args), cooperative ? 0 : 801);
    check("cuLaunchCooperativeKernel_ptsz",
          cuLaunchCooperativeKernel_ptsz(function, 2, 1, 1, 64, 1, 1, 0, NULL, args), cooperative ? 0 : 801);
    char packed[100] = {0};
    size_t packed_bytes = sizeof packed;
    void *extra[] = {(void *)1, packed, (void *)2, &packed_bytes, NULL};
    check("cuLaunchKernel with packed parameters", cuLaunchKernel(function, 2, 1, 1, 64, 1, 1, 0, NULL, NULL, extra), 0);
    launch_config config = {{2, 1, 1}, {64, 1, 1}, 0, NULL, NULL, 0};
    check("cuLaunchKernelEx", cuLaunchKernelEx(&config, function, args, NULL), 0);
    check("cuLaunchKernelEx_ptsz", cuLaunchKernelEx_ptsz(&config, function, args, NULL), 0);
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
    kernel_nodes(function, args);
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
    check("cuKernelGetName", cuKernelGetName(&name, kernel), 0);
    check_text("a kernel's name", name, "hundred");
    check("cuKernelGetLibrary", cuKernelGetLibrary(&owner, kernel), 0);
    check_true("a kernel's library", owner == library);
    check("cuKernelGetParamCount", cuKernelGetParamCount(kernel, &count), 0);
    check("a kernel's parameters", (long long)count, 13);
    check("cuKernelGetParamInfo", cuKernelGetParamInfo(kernel, 1, &offset, &width), 0);
    check_true("the second of them", offset == 8 && width == 8);
    check("cuKernelSetCacheConfig", cuKernelSetCacheConfig(kernel, 1, 0), 0);
    check("cuLibraryGetKernelCount", cuLibraryGetKernelCount(&functions, library), 0);
    check("two kernels", functions, 2);
    check("cuLibraryEnumerateKernels", cuLibraryEnumerateKernels(all, 2, library), 0);
    check_true("ours is one", all[0] == kernel || all[1] == kernel);
    check("cuLibraryGetModule", cuLibraryGetModule(&module, library), 0);
    check_true("a library's module", module != NULL);
    address variable = 0;
    check("cuLibraryGetGlobal", cuLibraryGetGlobal(&variable, &width, library, "table"), 0);
    check("cuLibraryUnload", cuLibraryUnload(library), 0);

    char path[] = "/tmp/vgpu-driver-XXXXXX";
    int file = mkstemp(path);
    if (file >= 0 && write(file, PTX, sizeof PTX) == (ssize_t)sizeof PTX) {
        check("cuModuleLoad", cuModuleLoad(&module, path), 0);
        cuModuleUnload(module);
        check("cuLibraryLoadFromFile", cuLibraryLoadFromFile(&library, path, NULL, NULL, 0, NULL, NULL, 0), 0);
        cuLibraryUnload(library);
        unlink(path);
    }
    check("cuModuleLoad of no file", cuModuleLoad(&module, "/nonexistent/code"), 301);
    check("cuLibraryLoadFromFile of no file",
          cuLibraryLoadFromFile(&library, "/nonexistent/code", NULL, NULL, 0, NULL, NULL, 0), 301);
}

#endif
