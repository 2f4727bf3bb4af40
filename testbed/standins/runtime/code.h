/* Registered code: kernels, launches, variables; libraries. Part of runtime.c. */
#ifndef VGPU_STANDINS_RUNTIME_CODE_H
#define VGPU_STANDINS_RUNTIME_CODE_H

#include "common.h"

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

    if (!kernels) {
        skip("launches, attributes, variables", "the device runs no code");
        int status = cudaLaunchKernel(&hundred, grid, block, args, 0, NULL);
        int late = cudaDeviceSynchronize();
        check_true("a launch that is not done is no success", status != 0 || late != 0);
        while (cudaGetLastError()) {
        }
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

    check("cudaLaunchKernel", cudaLaunchKernel(&hundred, grid, block, args, 0, NULL), 0);
    check("cudaLaunchKernel_ptsz", cudaLaunchKernel_ptsz(&hundred, grid, block, args, 0, NULL), 0);
    check("__cudaLaunchKernel", __cudaLaunchKernel(kernel, grid, block, args, 0, NULL), 0);
    check("cudaLaunchKernel of a kernel's handle", cudaLaunchKernel(kernel, grid, block, args, 0, NULL), 0);
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
    void *library = NULL, *loaded = NULL;
    check("cudaLibraryLoadData null", cudaLibraryLoadData(&library, NULL, NULL, NULL, 0, NULL, NULL, 0), 1);
    check("cudaLibraryLoadData", cudaLibraryLoadData(&library, &fatbin, NULL, NULL, 0, NULL, NULL, 0), 0);
    check("cudaLibraryGetKernel", cudaLibraryGetKernel(&loaded, library, "hundred"), 0);
    check("a launch from a library", cudaLaunchKernel(loaded, grid, block, args, 0, NULL), 0);
    check("cudaDeviceSynchronize after it", cudaDeviceSynchronize(), 0);
    check("cudaLibraryUnload", cudaLibraryUnload(library), 0);
    __cudaUnregisterFatBinary(handle);
    check("a kernel that was unregistered", cudaLaunchKernel(&hundred, grid, block, args, 0, NULL), 98);
}

#endif
