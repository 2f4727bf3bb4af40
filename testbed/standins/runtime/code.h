/* Registered code: kernels, launches, variables; libraries. Part of runtime.c. */
#ifndef VGPU_STANDINS_RUNTIME_CODE_H
#define VGPU_STANDINS_RUNTIME_CODE_H

#include "../check.h"
#include "api.h"

static char hundred, adder, nobody, missing, numbers; /* their addresses stand for what is on the device */

static void code(void)
{
    static struct fatbin fatbin;
    static struct fatbin_wrapper wrapper;
    fatbin_make(&fatbin, PTX);
    fatbin_wrap(&wrapper, &fatbin);
    void **handle = __cudaRegisterFatBinary(&wrapper);
    check_true("__cudaRegisterFatBinary", handle != NULL);
    __cudaRegisterFunction(handle, &hundred, "hundred", "hundred", -1, NULL, NULL, NULL, NULL, NULL);
    __cudaRegisterFunction(handle, &adder, "add", "add", -1, NULL, NULL, NULL, NULL, NULL);
    __cudaRegisterFunction(handle, &missing, "missing", "missing", -1, NULL, NULL, NULL, NULL, NULL);
    __cudaRegisterVar(handle, &numbers, "table", "table", 0, 16, 0, 0);
    __cudaRegisterFatBinaryEnd(handle);

    dim3 grid = {2, 1, 1}, block = {64, 1, 1}, none = {0, 1, 1}, large = {1 << 20, 1, 1};
    uint64_t parameters[13] = {0};
    void *args[13];
    for (int i = 0; i < 13; i++)
        args[i] = &parameters[i];
    check("cudaLaunchKernel of none", cudaLaunchKernel(&nobody, grid, block, args, 0, NULL), 98);
    check("cudaLaunchKernel null", cudaLaunchKernel(NULL, grid, block, args, 0, NULL), 98);
    check("cudaLaunchCooperativeKernel of none", cudaLaunchCooperativeKernel(&nobody, grid, block, args, 0, NULL), 98);
    check("cudaLaunchKernelExC null", cudaLaunchKernelExC(NULL, &hundred, args), 1);
    function_attributes attributes;
    check("cudaFuncGetAttributes of none", cudaFuncGetAttributes(&attributes, &nobody), 98);
    check("cudaFuncSetAttribute of none", cudaFuncSetAttribute(&nobody, 8, 0), 98);
    void *kernel = NULL, *address = NULL;
    size_t bytes = 0;
    check("__cudaGetKernel of none", __cudaGetKernel(&kernel, &nobody), 98);
    check("cudaGetLastError", cudaGetLastError(), 98);
    check("__cudaLaunchKernel of none", __cudaLaunchKernel(NULL, grid, block, args, 0, NULL), 98);
    cudaGetLastError();
    check("cudaGetSymbolAddress of none", cudaGetSymbolAddress(&address, &nobody), 13);
    check("cudaGetSymbolSize of none", cudaGetSymbolSize(&bytes, &nobody), 13);
    check("cudaMemcpyToSymbol of none", cudaMemcpyToSymbol(&nobody, parameters, 4, 0, H2D), 13);
    dim3 popped_grid, popped_block;
    void *popped_stream = NULL;
    check("__cudaPushCallConfiguration", __cudaPushCallConfiguration(grid, block, 48, BOGUS), 0);
    check("__cudaPopCallConfiguration", __cudaPopCallConfiguration(&popped_grid, &popped_block, &bytes, &popped_stream), 0);
    check_true("the configuration comes back", popped_grid.x == 2 && popped_block.x == 64 && bytes == 48 &&
                                                   popped_stream == BOGUS);
    check("__cudaPopCallConfiguration of none",
          __cudaPopCallConfiguration(&popped_grid, &popped_block, &bytes, &popped_stream), 52);
    void *function = NULL;
    unsigned found = 9;
    check("cudaGetDriverEntryPoint", cudaGetDriverEntryPoint("cuMemAlloc", &function, 0, &found), 0);
    check_true("it is found", function != NULL && found == 0);
    check("cudaGetDriverEntryPoint of none", cudaGetDriverEntryPoint("cuNoSuchCall", &function, 0, &found), 0);
    check_true("it is not found", function == NULL && found == 1);
    check("cudaGetDriverEntryPoint null", cudaGetDriverEntryPoint(NULL, &function, 0, &found), 1);
    check("cudaGetDriverEntryPointByVersion",
          cudaGetDriverEntryPointByVersion("cuMemAlloc", &function, 3020, 0, &found), 0);
    check_true("it is found by version", function != NULL && found == 0);
    void *legacy = NULL;
    check("cudaGetDriverEntryPoint of a stream's call", cudaGetDriverEntryPoint("cuStreamQuery", &legacy, 0, &found), 0);
    check("cudaGetDriverEntryPoint_ptsz", cudaGetDriverEntryPoint_ptsz("cuStreamQuery", &function, 0, &found), 0);
    check_true("it is another one", function != NULL && function != legacy);
    check("cudaGetDriverEntryPointByVersion_ptsz",
          cudaGetDriverEntryPointByVersion_ptsz("cuStreamQuery", &function, 12000, 1, &found), 0);
    check_true("flags for the legacy stream give the legacy one", function == legacy);

    if (!kernels) {
        skip("launches, attributes, variables", "the device runs no code");
        int status = cudaLaunchKernel(&hundred, grid, block, args, 0, NULL);
        int late = cudaDeviceSynchronize();
        check_true("a launch that is not done is no success", status != 0 || late != 0);
        cudaGetLastError();
        __cudaUnregisterFatBinary(handle);
        return;
    }
    check("cudaFuncGetAttributes", cudaFuncGetAttributes(&attributes, &hundred), 0);
    check("cudaFuncGetAttributes null", cudaFuncGetAttributes(NULL, &hundred), 1);
    check_true("a kernel has a limit of threads", attributes.max_threads > 0 && attributes.max_threads <= 1024);
    const char *name = NULL;
    check("cudaFuncGetName", cudaFuncGetName(&name, &hundred), 0);
    check_text("the name of a kernel", name, "hundred");
    check("cudaFuncSetAttribute", cudaFuncSetAttribute(&hundred, 8, 1024), 0);
    check("cudaFuncSetAttribute unknown", cudaFuncSetAttribute(&hundred, 99, 1), 1);
    check("cudaFuncSetCacheConfig", cudaFuncSetCacheConfig(&hundred, 1), 0);
    size_t offset = 99;
    check("cudaFuncGetParamInfo", cudaFuncGetParamInfo(&hundred, 12, &offset, &bytes), 0);
    check_true("the last parameter", offset == 96 && bytes == 4);
    check("cudaFuncGetParamInfo past the end", cudaFuncGetParamInfo(&hundred, 13, &offset, &bytes), 1);
    check("cudaFuncGetParamInfo null", cudaFuncGetParamInfo(&hundred, 0, NULL, &bytes), 1);
    int blocks = -1;
    check("cudaOccupancyMaxActiveBlocksPerMultiprocessor",
          cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, &hundred, 64, 0), 0);
    check_true("a multiprocessor holds a block", blocks >= 1);
    check("cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags",
          cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&blocks, &hundred, 64, 0, 0), 0);
    check("cudaOccupancyMaxActiveBlocksPerMultiprocessor null",
          cudaOccupancyMaxActiveBlocksPerMultiprocessor(NULL, &hundred, 64, 0), 1);
    check("cudaGetFuncBySymbol", cudaGetFuncBySymbol(&function, &hundred), 0);
    check("cudaGetKernel", cudaGetKernel(&kernel, &hundred), 0);
    check("__cudaGetKernel", __cudaGetKernel(&kernel, &hundred), 0);
    check_true("a kernel's handle", kernel != NULL);
    check("cudaKernelSetAttributeForDevice", cudaKernelSetAttributeForDevice(kernel, 8, 512, 0), 0);
    check("cudaKernelSetAttributeForDevice no device", cudaKernelSetAttributeForDevice(kernel, 8, 512, counted), 101);
    check("cudaKernelSetAttributeForDevice unknown", cudaKernelSetAttributeForDevice(kernel, 99, 512, 0), 1);

    check("cudaLaunchKernel", cudaLaunchKernel(&hundred, grid, block, args, 0, NULL), 0);
    check("cudaLaunchKernel_ptsz", cudaLaunchKernel_ptsz(&hundred, grid, block, args, 0, NULL), 0);
    check("__cudaLaunchKernel", __cudaLaunchKernel(kernel, grid, block, args, 0, NULL), 0);
    check("cudaLaunchKernel of a kernel's handle", cudaLaunchKernel(kernel, grid, block, args, 0, NULL), 0);
    int cooperative = 0;
    cudaDeviceGetAttribute(&cooperative, 95, 0);
    check("cudaLaunchCooperativeKernel", cudaLaunchCooperativeKernel(&hundred, grid, block, args, 0, NULL), cooperative ? 0 : 801);
    launch_config config = {grid, block, 0, NULL, NULL, 0};
    check("cudaLaunchKernelExC", cudaLaunchKernelExC(&config, &hundred, args), 0);
    check("cudaLaunchKernel without a grid", cudaLaunchKernel(&hundred, none, block, args, 0, NULL), 9);
    check("cudaLaunchKernel without a block", cudaLaunchKernel(&hundred, grid, none, args, 0, NULL), 9);
    check("cudaLaunchKernel of too large a block", cudaLaunchKernel(&hundred, grid, large, args, 0, NULL), 9);
    check("cudaLaunchKernel of too much shared memory", cudaLaunchKernel(&hundred, grid, block, args, 1 << 30, NULL), 1);
    check("cudaLaunchKernel in none", cudaLaunchKernel(&hundred, grid, block, args, 0, BOGUS), 400);
    check("cudaDeviceSynchronize", cudaDeviceSynchronize(), 0);

    check("cudaGetSymbolAddress", cudaGetSymbolAddress(&address, &numbers), 0);
    check("cudaGetSymbolSize", cudaGetSymbolSize(&bytes, &numbers), 0);
    if (data) {
        check("a kernel that the code does not have", cudaLaunchKernel(&missing, grid, block, args, 0, NULL), 98);
        check("the size of a variable", (long long)bytes, 16);
        static unsigned words[100], got[100];
        void *memory = NULL;
        unsigned n = 100, number = 7;
        for (unsigned i = 0; i < n; i++)
            words[i] = i * i;
        cudaMalloc(&memory, sizeof words);
        cudaMemcpy(memory, words, sizeof words, H2D);
        void *add[] = {&memory, &n, &number};
        check("a launch that computes", cudaLaunchKernel(&adder, grid, block, add, 0, NULL), 0);
        check("its result", cudaMemcpy(got, memory, sizeof words, D2H), 0);
        for (unsigned i = 0; i < n; i++)
            words[i] += number;
        check("the sums are right", memcmp(words, got, sizeof words), 0);
        cudaFree(memory);
        unsigned char variable[16];
        check("cudaMemcpyFromSymbol", cudaMemcpyFromSymbol(variable, &numbers, 16, 0, D2H), 0);
        check("a variable's initial value", variable[15], 16);
        check("cudaMemcpyToSymbol", cudaMemcpyToSymbol(&numbers, "AB", 2, 14, H2D), 0);
        check("cudaMemcpyFromSymbol after", cudaMemcpyFromSymbol(variable, &numbers, 2, 14, D2H), 0);
        check("a variable's new value", variable[1], 'B');
        check("cudaMemcpyToSymbol past the end", cudaMemcpyToSymbol(&numbers, "AB", 2, 15, H2D), 1);
    }
    char symbol[4];
    check("cudaMemcpyToSymbolAsync", cudaMemcpyToSymbolAsync(&numbers, "ABCD", 4, 0, H2D, NULL), 0);
    check("cudaMemcpyFromSymbolAsync", cudaMemcpyFromSymbolAsync(symbol, &numbers, 4, 0, D2H, NULL), 0);
    cudaStreamSynchronize(NULL);
    same("a variable's value comes back", symbol, "ABCD", 4);
    check("cudaMemcpyToSymbolAsync from the device", cudaMemcpyToSymbolAsync(&numbers, "ABCD", 4, 0, D2H, NULL), 21);
    check("cudaMemcpyFromSymbolAsync to the device", cudaMemcpyFromSymbolAsync(symbol, &numbers, 4, 0, H2D, NULL), 21);

    kernel_node node_params = {&hundred, grid, block, 0, args, NULL}, read_back;
    void *graph = NULL, *exec = NULL, *node = NULL;
    cudaGraphCreate(&graph, 0);
    check("cudaGraphAddKernelNode", cudaGraphAddKernelNode(&node, graph, NULL, 0, &node_params), 0);
    check("cudaGraphAddKernelNode null", cudaGraphAddKernelNode(&node, graph, NULL, 0, NULL), 1);
    check("cudaGraphKernelNodeGetParams", cudaGraphKernelNodeGetParams(node, &read_back), 0);
    check_true("the node's kernel and shape", read_back.func == &hundred && read_back.grid.x == 2 && read_back.block.x == 64);
    node_params.grid.x = 3;
    check("cudaGraphKernelNodeSetParams", cudaGraphKernelNodeSetParams(node, &node_params), 0);
    check("cudaGraphKernelNodeGetParams after", cudaGraphKernelNodeGetParams(node, &read_back), 0);
    check("the node's new shape", read_back.grid.x, 3);
    check("cudaGraphKernelNodeSetParams null", cudaGraphKernelNodeSetParams(node, NULL), 1);
    check("cudaGraphInstantiate of a launch", cudaGraphInstantiate(&exec, graph, 0), 0);
    node_params.grid.x = 4;
    check("cudaGraphExecKernelNodeSetParams", cudaGraphExecKernelNodeSetParams(exec, node, &node_params), 0);
    check("cudaGraphLaunch of a launch", cudaGraphLaunch(exec, NULL), 0);
    check("cudaDeviceSynchronize after it", cudaDeviceSynchronize(), 0);
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);

    check("__cudaLaunchKernel_ptsz", __cudaLaunchKernel_ptsz(kernel, grid, block, args, 0, NULL), 0);
    check("cudaLaunchKernelExC_ptsz", cudaLaunchKernelExC_ptsz(&config, &hundred, args), 0);
    check("cudaLaunchCooperativeKernel_ptsz",
          cudaLaunchCooperativeKernel_ptsz(&hundred, grid, block, args, 0, NULL), cooperative ? 0 : 801);
    check("cudaMemcpyToSymbol_ptds", cudaMemcpyToSymbol_ptds(&numbers, "EFGH", 4, 0, H2D), 0);
    check("cudaMemcpyToSymbolAsync_ptsz", cudaMemcpyToSymbolAsync_ptsz(&numbers, "IJ", 2, 0, H2D, NULL), 0);
    check("cudaMemcpyFromSymbolAsync_ptsz", cudaMemcpyFromSymbolAsync_ptsz(symbol, &numbers, 4, 0, D2H, NULL), 0);
    check("cudaMemcpyFromSymbol_ptds", cudaMemcpyFromSymbol_ptds(symbol, &numbers, 4, 0, D2H), 0);
    same("a variable's value comes back by the per-thread stream", symbol, "IJGH", 4);
    void *library = NULL, *loaded = NULL;
    check("cudaLibraryLoadData null", cudaLibraryLoadData(&library, NULL, NULL, NULL, 0, NULL, NULL, 0), 1);
    check("cudaLibraryLoadFromFile null", cudaLibraryLoadFromFile(&library, NULL, NULL, NULL, 0, NULL, NULL, 0), 1);
    check("cudaLibraryLoadFromFile of none", cudaLibraryLoadFromFile(&library, "/nowhere", NULL, NULL, 0, NULL, NULL, 0), 301);
    check("cudaLibraryLoadData", cudaLibraryLoadData(&library, &fatbin, NULL, NULL, 0, NULL, NULL, 0), 0);
    check("cudaLibraryGetKernel", cudaLibraryGetKernel(&loaded, library, "hundred"), 0);
    unsigned count = 0;
    void *all[2] = {NULL, NULL};
    check("cudaLibraryGetKernelCount", cudaLibraryGetKernelCount(&count, library), 0);
    check("two kernels", count, 2);
    check("cudaLibraryGetKernelCount null", cudaLibraryGetKernelCount(NULL, library), 1);
    check("cudaLibraryEnumerateKernels", cudaLibraryEnumerateKernels(all, 2, library), 0);
    check_true("both are there", all[0] && all[1] && (all[0] == loaded || all[1] == loaded));
    check("cudaLibraryEnumerateKernels null", cudaLibraryEnumerateKernels(NULL, 2, library), 1);
    check("cudaLibraryGetGlobal", cudaLibraryGetGlobal(&address, &bytes, library, "table"), 0);
    check("cudaLibraryGetGlobal null", cudaLibraryGetGlobal(&address, &bytes, library, NULL), 1);
    check("a launch from a library", cudaLaunchKernel(loaded, grid, block, args, 0, NULL), 0);
    check("cudaDeviceSynchronize after it", cudaDeviceSynchronize(), 0);
    check("cudaLibraryUnload", cudaLibraryUnload(library), 0);
    __cudaUnregisterFatBinary(handle);
    check("a kernel that was unregistered", cudaLaunchKernel(&hundred, grid, block, args, 0, NULL), 98);
}

#endif
