/* Drives each implemented call of the runtime API through the real loader: return codes, bad arguments, calls before
 * the first that initialises, in a forked child, after exit began. One line a check (TAP); exit code 0 when all held.
 *
 * Usage: runtime [data] [graphs] [kernels]   what the device is able to do: keep what is copied to it, run graphs, run code
 *        runtime refused CODE                where CUDA cannot be initialised
 * cc -DCUDA=12 -o runtime runtime.c libcudart.so.12 libcuda.so.1 -lpthread    (or 13) */
#define _GNU_SOURCE
#include <pthread.h>

#include "check.h"
#include "runtime/api.h"
#include "runtime/devices.h"
#include "runtime/memory.h"
#include "runtime/streams.h"
#include "runtime/graphs.h"
#include "runtime/code.h"
#include "runtime/variants.h"

static void at_exit(void)
{
    if (is_child)
        return;
    int count = -1;
    void *memory = NULL;
    check("after exit began: cudaGetDeviceCount", cudaGetDeviceCount(&count), 4);
    check("after exit began: the count is untouched", count, -1);
    check("after exit began: cudaGetDevice", cudaGetDevice(&count), 4);
    check("after exit began: cudaMalloc", cudaMalloc(&memory, 16), 4);
    check("after exit began: cudaFree", cudaFree(NULL), 4);
    check("after exit began: cudaDeviceSynchronize", cudaDeviceSynchronize(), 4);
    check("after exit began: cudaStreamSynchronize", cudaStreamSynchronize(NULL), 4);
    check("after exit began: cudaGetLastError", cudaGetLastError(), 4);
    check_text("after exit began: cudaGetErrorString", cudaGetErrorString(4), "driver shutting down");
    if (finish() != 0)
        _exit(1);
}

static void *thread(void *unused)
{
    int ordinal = -1;
    void *memory = NULL;
    check("in another thread: no error", cudaPeekAtLastError(), 0);
    check("in another thread: cudaGetDevice", cudaGetDevice(&ordinal), 0);
    check("in another thread: device 0", ordinal, 0);
    check("in another thread: cudaMalloc", cudaMalloc(&memory, 4096), 0);
    check("in another thread: cudaMemsetAsync", cudaMemsetAsync(memory, 1, 4096, PER_THREAD), 0);
    check("in another thread: cudaStreamSynchronize", cudaStreamSynchronize(PER_THREAD), 0);
    check("in another thread: cudaFree", cudaFree(memory), 0);
    return unused;
}

static void threads(void)
{
    pthread_t other;
    cudaSetDevice(9999);
    if (pthread_create(&other, NULL, thread, NULL) == 0)
        pthread_join(other, NULL);
    check("this thread's error is still there", cudaGetLastError(), 101);
}

static void other_devices(void)
{
    if (counted < 2) {
        skip("a second device", "there is none");
        return;
    }
    int ordinal = -1;
    void *first = NULL, *second = NULL;
    static unsigned char in[5000], got[5000];
    fill(in, sizeof in, 9);
    cudaMalloc(&first, sizeof in);
    check("cudaSetDevice 1", cudaSetDevice(1), 0);
    check("cudaGetDevice 1", cudaGetDevice(&ordinal), 0);
    check("it is device 1", ordinal, 1);
    check("cudaMalloc on device 1", cudaMalloc(&second, sizeof in), 0);
    pointer_attributes attributes;
    check("cudaPointerGetAttributes on device 1", cudaPointerGetAttributes(&attributes, second), 0);
    check("the memory is device 1's", attributes.device, 1);
    cudaMemcpy(second, in, sizeof in, H2D);
    check("cudaMemcpyPeer between devices", cudaMemcpyPeer(first, 0, second, 1, sizeof in), 0);
    cudaSetDevice(0);
    cudaMemcpy(got, first, sizeof in, D2H);
    same("bytes come from the other device", in, got, sizeof in);
    cudaFree(first);
    check("cudaFree of the other device's memory", cudaFree(second), 0);
}

/* In a forked child of an initialised process. */
static int child_of_initialised(void)
{
    int count = -1;
    void *memory = NULL;
    if (cudaGetDeviceCount(&count) != 3)
        return 10;
    if (cudaGetDevice(&count) != 3)
        return 11;
    if (cudaMalloc(&memory, 16) != 3)
        return 12;
    if (cudaDeviceSynchronize() != 3)
        return 13;
    if (cudaGetLastError() != 3)
        return 14;
    if (cudaFree(NULL) != 3)
        return 15;
    if (cudaLaunchKernel(&hundred, (dim3){1, 1, 1}, (dim3){1, 1, 1}, NULL, 0, NULL) != 3)
        return 16;
    return 0;
}

/* In a forked child of a process that has not called CUDA: it is a process like any other. */
static int child_of_fresh(void)
{
    void *memory = NULL;
    int status = cudaMalloc(&memory, 4096);
    return status ? 20 + status : cudaFree(memory);
}

/* A device address that is none: found out by the guest at once, or by the host later; then the context is lost. */
static int child_with_bad_address(void)
{
    void *memory = NULL;
    if (cudaMalloc(&memory, 4096))
        return 30;
    int status = cudaMemset((void *)0x7777777000, 0, 16);
    int late = cudaDeviceSynchronize();
    if (status == 1)
        return 0;
    if (!data)
        return 0; /* a device that does nothing finds nothing */
    if (late != 700)
        return 31;
    if (cudaGetLastError() != 700 || cudaGetLastError() != 700)
        return 32;
    if (cudaMalloc(&memory, 16) != 700)
        return 33;
    return cudaMemset(memory, 0, 16) == 700 ? 0 : 34;
}

/* Where there is no device, or its driver is too old: every call that initialises answers `code`. */
static int refused(int code)
{
    int value = -1;
    void *memory = NULL;
    static char properties[1100];
    check("refused: cudaRuntimeGetVersion", cudaRuntimeGetVersion(&value), 0);
    check("refused: its major", value / 1000, CUDA);
    value = -1;
    check("refused: cudaGetDeviceCount", cudaGetDeviceCount(&value), code);
    check("refused: the count is untouched", value, -1);
    check("refused: cudaGetDevice", cudaGetDevice(&value), code);
    check("refused: cudaSetDevice", cudaSetDevice(0), code);
    check("refused: cudaGetDeviceProperties", cudaGetDeviceProperties(properties, 0), code);
    check("refused: cudaDeviceGetAttribute", cudaDeviceGetAttribute(&value, 75, 0), code);
    check("refused: cudaMalloc", cudaMalloc(&memory, 16), code);
    check("refused: cudaFree", cudaFree(NULL), code);
    check("refused: cudaDeviceSynchronize", cudaDeviceSynchronize(), code);
    check("refused: cudaGetLastError", cudaGetLastError(), code);
    check("refused: cudaGetLastError again", cudaGetLastError(), code);
    check("refused: cudaDriverGetVersion", cudaDriverGetVersion(&value), 0);
    return finish();
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc == 3 && strcmp(argv[1], "refused") == 0)
        return refused(atoi(argv[2]));
    abilities(argc, argv);
    atexit(at_exit); /* before the first call: runs after the libraries' own handlers */

    check("a child forked before the first call", forked(child_of_fresh), 0);
    check("a child that uses a bad address", forked(child_with_bad_address), 0);
    versions();
    last_error();
    devices();
    memory();
    host_memory();
    streams_and_events();
    host_functions();
    graphs();
    code();
    variants();
    threads();
    other_devices();

    void *kept = NULL;
    static unsigned char in[3000], got[3000];
    fill(in, sizeof in, 11);
    cudaMalloc(&kept, sizeof in);
    cudaMemcpy(kept, in, sizeof in, H2D);
    check("a forked child", forked(child_of_initialised), 0);
    check("after the child's exit: cudaMemcpy", cudaMemcpy(got, kept, sizeof in, D2H), 0);
    same("after the child's exit: the parent's memory", in, got, sizeof in);
    check("after the child's exit: cudaDeviceSynchronize", cudaDeviceSynchronize(), 0);

    check("cudaDeviceReset", cudaDeviceReset(), 0);
    check("memory of before a reset", cudaFree(kept), 1);
    check("cudaMalloc after a reset", cudaMalloc(&kept, 4096), 0);
    check("cudaFree after a reset", cudaFree(kept), 0);
#if CUDA == 12
    check("cudaThreadExit", cudaThreadExit(), 0);
    check("cudaMalloc after it", cudaMalloc(&kept, 4096), 0);
#endif
    cudaGetLastError();
    return failures ? 1 : 0;
}
