/* A kernel's fault, as a program meets it. Usage: fault bad | good
   bad    a kernel writes to an address that is nobody's: 700, and the context is lost for this process
   good   the same kernel writes where it may; says so; does it again when its input ends
   The exit code is 0, or the number of what did not hold.

   cc -o fault fault.c libcuda.so.1 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef unsigned long long address;

int cuInit(unsigned flags);
int cuDevicePrimaryCtxRetain(void **context, int device);
int cuCtxSetCurrent(void *context);
int cuCtxSynchronize(void);
int cuMemAlloc_v2(address *pointer, size_t bytes);
int cuMemcpyDtoH_v2(void *destination, address pointer, size_t bytes);
int cuModuleLoadData(void **module, const void *image);
int cuModuleGetFunction(void **function, void *module, const char *name);
int cuLaunchKernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                   unsigned block_y, unsigned block_z, unsigned shared, void *stream, void **parameters, void **extra);

/* CUDA_ERROR_ILLEGAL_ADDRESS */
enum { ILLEGAL_ADDRESS = 700 };

static const char code[] = ".version 7.0\n.target sm_50\n.address_size 64\n"
                           ".visible .entry poke(.param .u64 where, .param .u32 what) {\n"
                           ".reg .u64 %d<2>; .reg .u32 %r<2>;\n"
                           "ld.param.u64 %d1, [where]; ld.param.u32 %r1, [what];\n"
                           "st.global.u32 [%d1], %r1; ret; }\n";

static void *poke;

static int launch(address where, unsigned what) {
    void *parameters[] = {&where, &what};
    return cuLaunchKernel(poke, 1, 1, 1, 1, 1, 1, 0, 0, parameters, 0);
}

static int works(address memory, unsigned what) {
    unsigned found = 0;
    return !launch(memory, what) && !cuCtxSynchronize() && !cuMemcpyDtoH_v2(&found, memory, 4) && found == what;
}

int main(int count, char **words) {
    void *context, *module;
    address memory, more;
    unsigned found;
    if (count != 2 || cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context) ||
        cuMemAlloc_v2(&memory, 4096) || cuModuleLoadData(&module, code) || cuModuleGetFunction(&poke, module, "poke"))
        return 2;
    if (!works(memory, 5))
        return 3;
    if (!strcmp(words[1], "good")) {
        printf("ready\n");
        fflush(stdout);
        while (getchar() != EOF)
            ;
        return works(memory, 6) ? 0 : 4;
    }
    /* The launch may know of it already; who waits must. */
    int status = launch(0xdead0000, 7);
    if (status != 0 && status != ILLEGAL_ADDRESS)
        return 5;
    int statuses[] = {cuCtxSynchronize(), cuCtxSynchronize(), launch(memory, 8), cuMemAlloc_v2(&more, 4096),
                      cuMemcpyDtoH_v2(&found, memory, 4)};
    for (unsigned number = 0; number < sizeof statuses / sizeof *statuses; number++)
        if (statuses[number] != ILLEGAL_ADDRESS) {
            fprintf(stderr, "call %u behind the fault returns %d\n", number, statuses[number]);
            return 10 + (int)number;
        }
    return 0;
}
