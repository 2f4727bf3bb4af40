/* Drives each implemented call of cuBLAS, and cuBLASLt's descriptors and products, through the real loader: return
 * codes, bad arguments, calls without a handle, in a forked child, after exit began; and how many messages each sends: one
 * if there is something to compute, none otherwise. One line a check (TAP); exit code 0 when all held.
 *
 * Usage: blas [numbers]     the device computes: look at what it makes of products and solves
 * cc -DCUDA=12 -o blas blas.c libcublas.so.12 libcublasLt.so.12 libcuda.so.1    (or 13) */
#define _GNU_SOURCE
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "blas/api.h"

/* One and nought in each type. */
static const float S1[] = {1, 0}, S0[] = {0, 0}, *const Cc1 = S1, *const Cc0 = S0;
static const double D1[] = {1, 0}, D0[] = {0, 0}, *const Z1 = D1, *const Z0 = D0;
static const uint16_t H1[] = {0x3c00}, H0[] = {0};

static void *handle;
static const struct table *private;
/* Device memory, in the middle of more, and arrays of three of its addresses. */
static char *A, *B, *C, *AA, *BB, *CC;

/* A call that answers `status` and sends that many messages. */
static void sends(const char *what, const char *name, uint64_t before, int got, int status, int count)
{
    char text[160];
    uint64_t sent = messages(private) - before;
    snprintf(text, sizeof text, "%s %s", name, what);
    check(text, got, status);
    snprintf(text, sizeof text, "%s %s: messages", name, what);
    check(text, (long long)sent, count);
}

/* Lets the device say what it has to say of earlier products. */
static void settle(void)
{
    check("cuCtxSynchronize", cuCtxSynchronize(), 0);
}

#define CASE(what, name, status, count, call)                                                                      \
    do {                                                                                                           \
        uint64_t before = messages(private);                                                                       \
        int got = call;                                                                                            \
        sends(what, #name, before, got, status, count);                                                            \
    } while (0)

#include "blas/handles.h"
#include "blas/products.h"
#include "blas/lt.h"
#include "blas/numbers.h"

/* Room for every operand; a batch's strides may be negative. */
static void allocate(void)
{
    enum { STEP = 1 << 16 };
    check("cuMemAlloc_v2", cuMemAlloc_v2(&device_memory, 4 * ROOM), 0);
    char **operands[] = {&A, &B, &C}, **lists[] = {&AA, &BB, &CC};
    for (int i = 0; i < 3; i++) {
        *operands[i] = device_memory + (2 * i + 1) * STEP;
        *lists[i] = device_memory + 7 * STEP + 64 * i;
        char *addresses[] = {*operands[i], *operands[i] + STEP / 4, *operands[i] + STEP / 2};
        check("cuMemcpyHtoD_v2", cuMemcpyHtoD_v2(*lists[i], addresses, sizeof addresses), 0);
    }
    check("cuMemsetD8_v2", cuMemsetD8_v2(A, 0, 6 * STEP), 0);
}

/* --- other processes, other times -------------------------------------------------------------------- */

static int child(void)
{
    void *other = NULL;
    int status = cublasSgemm_v2(handle, 0, 0, 4, 4, 4, S1, A, 4, B, 4, S0, C, 4);
    if (status != NOT_INITIALIZED)
        return 10 + status;
    status = cublasCreate_v2(&other);
    return status == NOT_INITIALIZED && !other ? 0 : 100 + status;
}

static void at_exit(void)
{
    if (is_child)
        return;
    void *other = NULL;
    int value = -1;
    check("after exit began: cublasCreate_v2", cublasCreate_v2(&other), NOT_INITIALIZED);
    check("after exit began: cublasLtCreate", cublasLtCreate(&other), NOT_INITIALIZED);
    check("after exit began: cublasSgemm_v2", cublasSgemm_v2(handle, 0, 0, 4, 4, 4, S1, A, 4, B, 4, S0, C, 4), NOT_INITIALIZED);
    check("after exit began: cublasGetMathMode", cublasGetMathMode(handle, &value), OK);
    check("after exit began: cublasDestroy_v2", cublasDestroy_v2(handle), OK);
    if (finish() != 0)
        _exit(1);
}

int main(int argc, char **argv)
{
    int computes = argc == 2 && strcmp(argv[1], "numbers") == 0;
    atexit(at_exit); /* before libcuda's own, which so runs first */
    versions();
    check("cublasCreate_v2 null", cublasCreate_v2(NULL), INVALID);
    check("cublasDestroy_v2 null", cublasDestroy_v2(NULL), NOT_INITIALIZED);
    /* Initialises CUDA, and makes the first device's context the thread's. */
    if (!check("cublasCreate_v2", cublasCreate_v2(&handle), OK))
        return 1;
    private = table();
    if (!check_true("libcuda is this project's", private != NULL))
        return 1;
    check("the first message begins the session", private->echo(0), 0);
    allocate();
    settings();
    families();
    types();
    solves();
    lt();
    if (computes)
        numbers();
    check("a forked child's calls answer not-initialised", forked(child), 0);
    CASE("after the child", cublasSgemm_v2, OK, 1, cublasSgemm_v2(handle, 0, 0, 4, 4, 4, S1, A, 4, B, 4, S0, C, 4));
    void *second = NULL;
    settle();
    check("a second handle", cublasCreate_v2(&second), OK);
    check_true("another one", second && second != handle);
    check("cublasDestroy_v2", cublasDestroy_v2(second), OK);
    check("cublasDestroy_v2 again", cublasDestroy_v2(second), NOT_INITIALIZED);
    CASE("with a destroyed handle", cublasSgemm_v2, NOT_INITIALIZED, 0,
         cublasSgemm_v2(second, 0, 0, 4, 4, 4, S1, A, 4, B, 4, S0, C, 4));
    settle();
    return 0;
}
