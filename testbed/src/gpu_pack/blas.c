/* libcublas.so.12 for a machine that has CUDA 13's: each function is the one of that name in libcublas.so.13,
 * which the loader finds as any library. Of the functions here types, enumerations and structures are the same
 * in both. GGML's backend for CUDA 12 needs no others.
 *
 * A function that is missing there, and each where the library is missing, returns CUBLAS_STATUS_NOT_INITIALIZED,
 * and the reason is on stderr once. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>

#define LIBRARY "libcublas.so.13"
#define NOT_INITIALIZED 1

/* FUNCTIONS(FUNCTION): all that return a status. */
#define FUNCTIONS(FUNCTION) \
    FUNCTION(cublasCreate_v2) \
    FUNCTION(cublasDestroy_v2) \
    FUNCTION(cublasGemmBatchedEx) \
    FUNCTION(cublasGemmEx) \
    FUNCTION(cublasGemmStridedBatchedEx) \
    FUNCTION(cublasSetMathMode) \
    FUNCTION(cublasSetStream_v2) \
    FUNCTION(cublasSetWorkspace_v2) \
    FUNCTION(cublasSgemmBatched) \
    FUNCTION(cublasSgemmStridedBatched) \
    FUNCTION(cublasSgemm_v2) \
    FUNCTION(cublasStrsmBatched)

static int refuse(void)
{
    return NOT_INITIALIZED;
}

static const char *name_of(int status)
{
    (void)status;
    return "CUBLAS_STATUS_NOT_INITIALIZED: there is no " LIBRARY;
}

/* Each function jumps to an address that is filled in when this library is loaded: its arguments stay where the
 * caller has put them. */
#define TARGET(name) __attribute__((visibility("hidden"))) void *target_of_##name = (void *)refuse;
#define JUMP(name) \
    __asm__(".text\n.globl " #name "\n.type " #name ", @function\n" #name ":\n" \
            "\tendbr64\n\tjmp *target_of_" #name "(%rip)\n.size " #name ", .-" #name "\n");
FUNCTIONS(TARGET)
FUNCTIONS(JUMP)

__attribute__((visibility("hidden"))) void *target_of_cublasGetStatusString = (void *)name_of;
JUMP(cublasGetStatusString)

static void find(void *library, const char *name, void **target)
{
    void *function = dlsym(library, name);
    if (function != NULL) {
        *target = function;
    } else {
        fprintf(stderr, "libcublas.so.12 of vgpu-run's pack: %s\n", dlerror());
    }
}

__attribute__((constructor)) static void load(void)
{
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        fprintf(stderr, "libcublas.so.12 of vgpu-run's pack: %s\n", dlerror());
        return;
    }
#define FIND(name) find(library, #name, &target_of_##name);
    FUNCTIONS(FIND)
    FIND(cublasGetStatusString)
}
