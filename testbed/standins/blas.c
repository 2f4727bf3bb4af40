/* Drives each implemented call of cuBLAS, and cuBLASLt's descriptors and products, through the real loader: return
 * codes, bad arguments, calls without a handle, in a forked child, after exit began; and how many messages each sends: one
 * if there is something to compute, none otherwise. One line a check (TAP); exit code 0 when all held.
 *
 * What the device makes of a product is not looked at. One that computes none says so late, to whichever call comes next,
 * and then products are not counted.
 * Usage: blas [products]     the device takes products
 * cc -DCUDA=12 -o blas blas.c libcublas.so.12 libcublasLt.so.12 libcuda.so.1    (or 13) */
#define _GNU_SOURCE
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#ifndef CUDA
#define CUDA 12
#endif

enum { OK, NOT_INITIALIZED, INVALID = 7, EXECUTION_FAILED = 13, NOT_SUPPORTED = 15 };

typedef int64_t l;
typedef const void *in;
typedef void *out;
typedef long long stride;
#define NONE ((void *)0)
/* Device memory that nothing is expected of. */
#define A ((void *)0x100000)
#define B ((void *)0x200000)
#define C ((void *)0x300000)

int cuInit(unsigned), cuCtxSynchronize(void), cuStreamCreate(void **, unsigned), cuStreamDestroy_v2(void *);

int cublasCreate_v2(out *), cublasDestroy_v2(out), cublasGetVersion_v2(out, int *), cublasGetProperty(int, int *);
size_t cublasGetCudartVersion(void);
const char *cublasGetStatusName(int), *cublasGetStatusString(int);
int cublasSetStream_v2(out, out), cublasGetStream_v2(out, out *), cublasSetWorkspace_v2(out, out, size_t);
int cublasSetPointerMode_v2(out, int), cublasGetPointerMode_v2(out, int *), cublasSetAtomicsMode(out, int);
int cublasGetAtomicsMode(out, int *), cublasSetMathMode(out, int), cublasGetMathMode(out, int *);

/* The families: X(type letter, name with 32-bit sizes). Each also exists with 64-bit sizes. */
#define GEMM(X) X(S, cublasSgemm_v2) X(D, cublasDgemm_v2) X(Cc, cublasCgemm_v2) X(Z, cublasZgemm_v2) X(H, cublasHgemm)
#define BATCHED(X)                                                                                                 \
    X(S, cublasSgemmBatched) X(D, cublasDgemmBatched) X(Cc, cublasCgemmBatched) X(Z, cublasZgemmBatched)           \
    X(H, cublasHgemmBatched)
#define STRIDED(X)                                                                                                 \
    X(S, cublasSgemmStridedBatched) X(D, cublasDgemmStridedBatched) X(Cc, cublasCgemmStridedBatched)               \
    X(Z, cublasZgemmStridedBatched) X(H, cublasHgemmStridedBatched)
#define TRSM(X) X(S, cublasStrsm_v2) X(D, cublasDtrsm_v2) X(Cc, cublasCtrsm_v2) X(Z, cublasZtrsm_v2)
#define TRSM_BATCHED(X)                                                                                            \
    X(S, cublasStrsmBatched) X(D, cublasDtrsmBatched) X(Cc, cublasCtrsmBatched) X(Z, cublasZtrsmBatched)

#define DECLARE_GEMM(type, name)                                                                                   \
    int name(out, int, int, int, int, int, in, in, int, in, int, in, out, int);                                    \
    int name##_64(out, int, int, l, l, l, in, in, l, in, l, in, out, l);
GEMM(DECLARE_GEMM)
int cublasHgemm_64(out, int, int, l, l, l, in, in, l, in, l, in, out, l);
#define DECLARE_BATCHED(type, name)                                                                                \
    int name(out, int, int, int, int, int, in, in, int, in, int, in, out, int, int);                               \
    int name##_64(out, int, int, l, l, l, in, in, l, in, l, in, out, l, l);
BATCHED(DECLARE_BATCHED)
#define DECLARE_STRIDED(type, name)                                                                                \
    int name(out, int, int, int, int, int, in, in, int, stride, in, int, stride, in, out, int, stride, int);       \
    int name##_64(out, int, int, l, l, l, in, in, l, stride, in, l, stride, in, out, l, stride, l);
STRIDED(DECLARE_STRIDED)
#define DECLARE_TRSM(type, name)                                                                                   \
    int name(out, int, int, int, int, int, int, in, in, int, out, int);                                            \
    int name##_64(out, int, int, int, int, l, l, in, in, l, out, l);
TRSM(DECLARE_TRSM)
#define DECLARE_TRSM_BATCHED(type, name)                                                                           \
    int name(out, int, int, int, int, int, int, in, in, int, out, int, int);                                       \
    int name##_64(out, int, int, int, int, l, l, in, in, l, out, l, l);
TRSM_BATCHED(DECLARE_TRSM_BATCHED)

int cublasGemmEx(out, int, int, int, int, int, in, in, int, int, in, int, int, in, out, int, int, int, int);
int cublasGemmEx_64(out, int, int, l, l, l, in, in, int, l, in, int, l, in, out, int, l, int, int);
int cublasGemmBatchedEx(out, int, int, int, int, int, in, in, int, int, in, int, int, in, out, int, int, int, int, int);
int cublasGemmBatchedEx_64(out, int, int, l, l, l, in, in, int, l, in, int, l, in, out, int, l, l, int, int);
int cublasGemmStridedBatchedEx(out, int, int, int, int, int, in, in, int, int, stride, in, int, int, stride, in, out,
                               int, int, stride, int, int, int);
int cublasGemmStridedBatchedEx_64(out, int, int, l, l, l, in, in, int, l, stride, in, int, l, stride, in, out, int, l,
                                  stride, l, int, int);
int cublasSgemmEx(out, int, int, int, int, int, in, in, int, int, in, int, int, in, out, int, int);
int cublasSgemmEx_64(out, int, int, l, l, l, in, in, int, l, in, int, l, in, out, int, l);
int cublasCgemmEx(out, int, int, int, int, int, in, in, int, int, in, int, int, in, out, int, int);
int cublasCgemmEx_64(out, int, int, l, l, l, in, in, int, l, in, int, l, in, out, int, l);

int cublasLtCreate(out *), cublasLtDestroy(out), cublasLtGetProperty(int, int *);
size_t cublasLtGetVersion(void), cublasLtGetCudartVersion(void);
const char *cublasLtGetStatusName(int), *cublasLtGetStatusString(int);
int cublasLtMatmulDescCreate(out *, int, int), cublasLtMatmulDescDestroy(out);
int cublasLtMatmulDescInit_internal(out, size_t, int, int);
int cublasLtMatmulDescSetAttribute(out, int, in, size_t), cublasLtMatmulDescGetAttribute(out, int, out, size_t, size_t *);
int cublasLtMatrixLayoutCreate(out *, int, uint64_t, uint64_t, l), cublasLtMatrixLayoutDestroy(out);
int cublasLtMatrixLayoutInit_internal(out, size_t, int, uint64_t, uint64_t, l);
int cublasLtMatrixLayoutSetAttribute(out, int, in, size_t);
int cublasLtMatrixLayoutGetAttribute(out, int, out, size_t, size_t *);
int cublasLtMatmulPreferenceCreate(out *), cublasLtMatmulPreferenceDestroy(out);
int cublasLtMatmulPreferenceInit_internal(out, size_t);
int cublasLtMatmulPreferenceSetAttribute(out, int, in, size_t);
int cublasLtMatmulPreferenceGetAttribute(out, int, out, size_t, size_t *);
int cublasLtMatmul(out, in, in, in, in, in, in, in, in, in, out, in, in, out, size_t, out);
int cublasLtMatmulAlgoGetHeuristic(out, in, in, in, in, in, in, int, out, int *);

/* One and nought in each type. */
static const float S1[] = {1, 0}, S0[] = {0, 0}, *const Cc1 = S1, *const Cc0 = S0;
static const double D1[] = {1, 0}, D0[] = {0, 0}, *const Z1 = D1, *const Z0 = D0;
static const uint16_t H1[] = {0x3c00}, H0[] = {0};

static void *handle;
static const struct table *private;
static int products;

/* A call that answers `status` and sends that many messages. */
static void sends(const char *what, const char *name, uint64_t before, int got, int status, int count)
{
    char text[160];
    uint64_t sent = messages(private) - before;
    snprintf(text, sizeof text, "%s %s", name, what);
    if (count == 1 && !products) {
        check_either(text, got, status, NOT_SUPPORTED);
        return;
    }
    check(text, got, status);
    snprintf(text, sizeof text, "%s %s: messages", name, what);
    check(text, (long long)sent, count);
}
/* Lets the device say what it has to say of earlier products. */
static void settle(void)
{
    int status = cuCtxSynchronize();
    check_either("cuCtxSynchronize", status, 0, products ? 0 : 801);
}

#define CASE(what, name, status, count, call)                                                                      \
    do {                                                                                                           \
        uint64_t before = messages(private);                                                                       \
        int got = call;                                                                                            \
        sends(what, #name, before, got, status, count);                                                            \
    } while (0)

/* --- matrix products -------------------------------------------------------------------------------- */

#define TRY_GEMM(type, name)                                                                                       \
    CASE("", name, OK, 1, name(handle, 0, 1, 4, 5, 6, type##1, A, 4, B, 5, type##0, C, 4));                        \
    CASE("without handle", name, NOT_INITIALIZED, 0, name(NONE, 0, 0, 4, 5, 6, type##1, A, 4, B, 6, type##0, C, 4)); \
    CASE("bad operation", name, INVALID, 0, name(handle, 3, 0, 4, 5, 6, type##1, A, 4, B, 6, type##0, C, 4));      \
    CASE("bad size", name, INVALID, 0, name(handle, 0, 0, 4, -5, 6, type##1, A, 4, B, 6, type##0, C, 4));          \
    CASE("bad lda", name, INVALID, 0, name(handle, 0, 0, 4, 5, 6, type##1, A, 3, B, 6, type##0, C, 4));            \
    CASE("bad ldb", name, INVALID, 0, name(handle, 0, 1, 4, 5, 6, type##1, A, 4, B, 4, type##0, C, 4));            \
    CASE("bad ldc", name, INVALID, 0, name(handle, 0, 0, 4, 5, 6, type##1, A, 4, B, 6, type##0, C, 3));            \
    CASE("no alpha", name, INVALID, 0, name(handle, 0, 0, 4, 5, 6, NONE, A, 4, B, 6, type##0, C, 4));              \
    CASE("no beta", name, INVALID, 0, name(handle, 0, 0, 4, 5, 6, type##1, A, 4, B, 6, NONE, C, 4));               \
    CASE("no C", name, INVALID, 0, name(handle, 0, 0, 4, 5, 6, type##1, A, 4, B, 6, type##0, NONE, 4));            \
    CASE("empty", name, OK, 0, name(handle, 0, 0, 4, 0, 6, NONE, A, 4, B, 6, NONE, C, 4));                         \
    CASE("C to nought", name, OK, 1, name(handle, 0, 0, 4, 5, 0, type##1, A, 4, B, 1, type##0, C, 4));             \
    CASE("C as it is", name, OK, 0, name(handle, 0, 0, 4, 5, 0, type##1, A, 4, B, 1, type##1, C, 4));

#define TRY_BATCHED(type, name)                                                                                    \
    CASE("", name, OK, 1, name(handle, 0, 2, 4, 5, 6, type##1, A, 4, B, 5, type##0, C, 4, 3));                     \
    CASE("without handle", name, NOT_INITIALIZED, 0, name(NONE, 0, 0, 4, 5, 6, type##1, A, 4, B, 6, type##0, C, 4, 3)); \
    CASE("bad operation", name, INVALID, 0, name(handle, 0, 4, 4, 5, 6, type##1, A, 4, B, 6, type##0, C, 4, 3));   \
    CASE("bad count", name, INVALID, 0, name(handle, 0, 0, 4, 5, 6, type##1, A, 4, B, 6, type##0, C, 4, -3));      \
    CASE("none", name, OK, 0, name(handle, 0, 0, 4, 5, 6, type##1, A, 4, B, 6, type##0, C, 4, 0));                 \
    CASE("bad lda", name, INVALID, 0, name(handle, 1, 0, 4, 5, 6, type##1, A, 5, B, 6, type##0, C, 4, 3));         \
    CASE("no alpha", name, INVALID, 0, name(handle, 0, 0, 4, 5, 6, NONE, A, 4, B, 6, type##0, C, 4, 3));

#define TRY_STRIDED(type, name)                                                                                    \
    CASE("", name, OK, 1, name(handle, 0, 2, 4, 5, 6, type##1, A, 4, 24, B, 5, -30, type##0, C, 4, 20, 3));        \
    CASE("without handle", name, NOT_INITIALIZED, 0,                                                               \
         name(NONE, 0, 0, 4, 5, 6, type##1, A, 4, 24, B, 6, 30, type##0, C, 4, 20, 3));                            \
    CASE("bad count", name, INVALID, 0, name(handle, 0, 0, 4, 5, 6, type##1, A, 4, 24, B, 6, 30, type##0, C, 4, 20, -1)); \
    CASE("none", name, OK, 0, name(handle, 0, 0, 4, 5, 6, type##1, A, 4, 24, B, 6, 30, type##0, C, 4, 20, 0));     \
    CASE("bad ldc", name, INVALID, 0, name(handle, 0, 0, 4, 5, 6, type##1, A, 4, 24, B, 6, 30, type##0, C, 3, 20, 3)); \
    CASE("no beta", name, INVALID, 0, name(handle, 0, 0, 4, 5, 6, type##1, A, 4, 24, B, 6, 30, NONE, C, 4, 20, 3));

#define TRY_TRSM(type, name)                                                                                       \
    CASE("", name, OK, 1, name(handle, 0, 1, 2, 1, 8, 4, type##1, A, 8, C, 8));                                    \
    CASE("without handle", name, NOT_INITIALIZED, 0, name(NONE, 0, 0, 0, 0, 8, 4, type##1, A, 8, C, 8));           \
    CASE("bad side", name, INVALID, 0, name(handle, 2, 0, 0, 0, 8, 4, type##1, A, 8, C, 8));                       \
    CASE("bad fill", name, INVALID, 0, name(handle, 0, 2, 0, 0, 8, 4, type##1, A, 8, C, 8));                       \
    CASE("bad operation", name, INVALID, 0, name(handle, 0, 0, 3, 0, 8, 4, type##1, A, 8, C, 8));                  \
    CASE("bad diagonal", name, INVALID, 0, name(handle, 0, 0, 0, 2, 8, 4, type##1, A, 8, C, 8));                   \
    CASE("bad size", name, INVALID, 0, name(handle, 0, 0, 0, 0, -1, 4, type##1, A, 8, C, 8));                      \
    CASE("bad lda", name, INVALID, 0, name(handle, 0, 0, 0, 0, 8, 4, type##1, A, 7, C, 8));                        \
    CASE("right", name, OK, 1, name(handle, 1, 0, 0, 0, 8, 4, type##1, A, 4, C, 8));                               \
    CASE("bad ldb", name, INVALID, 0, name(handle, 0, 0, 0, 0, 8, 4, type##1, A, 8, C, 7));                        \
    CASE("no alpha", name, INVALID, 0, name(handle, 0, 0, 0, 0, 8, 4, NONE, A, 8, C, 8));                          \
    CASE("empty", name, OK, 0, name(handle, 0, 0, 0, 0, 8, 0, NONE, A, 8, C, 8));

#define TRY_TRSM_BATCHED(type, name)                                                                               \
    CASE("", name, OK, 1, name(handle, 0, 0, 0, 0, 8, 4, type##1, A, 8, C, 8, 2));                                 \
    CASE("without handle", name, NOT_INITIALIZED, 0, name(NONE, 0, 0, 0, 0, 8, 4, type##1, A, 8, C, 8, 2));        \
    CASE("bad side", name, INVALID, 0, name(handle, -1, 0, 0, 0, 8, 4, type##1, A, 8, C, 8, 2));                   \
    CASE("bad ldb", name, INVALID, 0, name(handle, 1, 0, 0, 0, 8, 4, type##1, A, 8, C, 7, 2));                     \
    CASE("bad count", name, INVALID, 0, name(handle, 0, 0, 0, 0, 8, 4, type##1, A, 8, C, 8, -2));                  \
    CASE("none", name, OK, 0, name(handle, 0, 0, 0, 0, 8, 4, type##1, A, 8, C, 8, 0));                             \
    CASE("no alpha", name, INVALID, 0, name(handle, 0, 0, 0, 0, 8, 4, NONE, A, 8, C, 8, 2));

#define BOTH(TRY, type, name) TRY(type, name) TRY(type, name##_64)
#define EACH_GEMM(type, name) BOTH(TRY_GEMM, type, name)
#define EACH_BATCHED(type, name) BOTH(TRY_BATCHED, type, name)
#define EACH_STRIDED(type, name) BOTH(TRY_STRIDED, type, name)
#define EACH_TRSM(type, name) BOTH(TRY_TRSM, type, name)
#define EACH_TRSM_BATCHED(type, name) BOTH(TRY_TRSM_BATCHED, type, name)

static void families(void)
{
    GEMM(EACH_GEMM)
    BATCHED(EACH_BATCHED)
    STRIDED(EACH_STRIDED)
}

static void solves(void)
{
    TRSM(EACH_TRSM)
    TRSM_BATCHED(EACH_TRSM_BATCHED)
}

/* Numbers of cudaDataType and cublasComputeType_t. */
enum { R_32F, R_64F, R_16F, R_8I, C_32F, C_64F, R_32I = 10, R_16BF = 14 };
enum { AS_16F = 64, AS_32F = 68, AS_64F = 70, AS_32I = 72, AS_TF32 = 77, AS_64F_FIXED = 79 };

#define TRY_EX(name)                                                                                               \
    CASE("", name, OK, 1, name(handle, 1, 0, 4, 5, 6, S1, A, R_16F, 6, B, R_16F, 6, S0, C, R_32F, 4, AS_32F, 99)); \
    CASE("without handle", name, NOT_INITIALIZED, 0,                                                               \
         name(NONE, 0, 0, 4, 5, 6, S1, A, R_32F, 4, B, R_32F, 6, S0, C, R_32F, 4, AS_32F, -1));                    \
    CASE("halves", name, OK, 1, name(handle, 0, 0, 4, 5, 6, H1, A, R_16F, 4, B, R_16F, 6, H0, C, R_16F, 4, AS_16F, -1)); \
    CASE("bfloats", name, OK, 1, name(handle, 0, 0, 4, 5, 6, S1, A, R_16BF, 4, B, R_16BF, 6, S0, C, R_16BF, 4, AS_32F, -1)); \
    CASE("TF32", name, OK, 1, name(handle, 0, 0, 4, 5, 6, S1, A, R_32F, 4, B, R_32F, 6, S0, C, R_32F, 4, AS_TF32, -1)); \
    CASE("a data type for computing", name, OK, 1,                                                                 \
         name(handle, 0, 0, 4, 5, 6, S1, A, R_32F, 4, B, R_32F, 6, S0, C, R_32F, 4, R_32F, -1));                   \
    CASE("mixed", name, NOT_SUPPORTED, 0, name(handle, 0, 0, 4, 5, 6, S1, A, R_32F, 4, B, R_16F, 6, S0, C, R_32F, 4, AS_32F, -1)); \
    CASE("narrow result", name, NOT_SUPPORTED, 0,                                                                  \
         name(handle, 0, 0, 4, 5, 6, S1, A, R_32F, 4, B, R_32F, 6, S0, C, R_16F, 4, AS_32F, -1));                  \
    CASE("types before sizes", name, NOT_SUPPORTED, 0,                                                             \
         name(handle, 0, 0, -4, 5, 6, S1, A, R_64F, 4, B, R_64F, 6, S0, C, R_64F, 4, AS_32F, -1));                 \
    CASE("fixed point", name, CUDA == 13 ? OK : NOT_SUPPORTED, CUDA == 13,                                         \
         name(handle, 0, 0, 4, 5, 6, D1, A, R_64F, 4, B, R_64F, 6, D0, C, R_64F, 4, AS_64F_FIXED, -1));            \
    CASE("bad algorithm", name, INVALID, 0, name(handle, 0, 0, 4, 5, 6, S1, A, R_32F, 4, B, R_32F, 6, S0, C, R_32F, 4, AS_32F, 24)); \
    CASE("autotune", name, CUDA == 13 ? OK : INVALID, CUDA == 13,                                                  \
         name(handle, 0, 0, 4, 5, 6, S1, A, R_32F, 4, B, R_32F, 6, S0, C, R_32F, 4, AS_32F, 999));                 \
    CASE("bad size", name, INVALID, 0, name(handle, 0, 0, 4, 5, -6, S1, A, R_32F, 4, B, R_32F, 6, S0, C, R_32F, 4, AS_32F, -1)); \
    CASE("no alpha", name, INVALID, 0, name(handle, 0, 0, 4, 5, 6, NONE, A, R_32F, 4, B, R_32F, 6, S0, C, R_32F, 4, AS_32F, -1)); \
    CASE("empty", name, OK, 0, name(handle, 0, 0, 0, 5, 6, S1, A, R_32F, 4, B, R_32F, 6, S0, C, R_32F, 4, AS_32F, -1));

#define TRY_BATCHED_EX(name)                                                                                       \
    CASE("", name, OK, 1, name(handle, 0, 0, 4, 5, 6, S1, A, R_16F, 4, B, R_16F, 6, S0, C, R_16F, 4, 3, AS_32F, -1)); \
    CASE("without handle", name, NOT_INITIALIZED, 0,                                                               \
         name(NONE, 0, 0, 4, 5, 6, S1, A, R_32F, 4, B, R_32F, 6, S0, C, R_32F, 4, 3, AS_32F, -1));                 \
    CASE("mixed", name, NOT_SUPPORTED, 0,                                                                          \
         name(handle, 0, 0, 4, 5, 6, S1, A, R_32F, 4, B, R_16F, 6, S0, C, R_32F, 4, 3, AS_32F, -1));               \
    CASE("bad count", name, INVALID, 0, name(handle, 0, 0, 4, 5, 6, S1, A, R_32F, 4, B, R_32F, 6, S0, C, R_32F, 4, -3, AS_32F, -1)); \
    CASE("none", name, OK, 0, name(handle, 0, 0, 4, 5, 6, S1, A, R_32F, 4, B, R_32F, 6, S0, C, R_32F, 4, 0, AS_32F, -1)); \
    CASE("bad lda", name, INVALID, 0, name(handle, 0, 0, 4, 5, 6, S1, A, R_32F, 3, B, R_32F, 6, S0, C, R_32F, 4, 0, AS_32F, -1));

#define TRY_STRIDED_EX(name)                                                                                       \
    CASE("", name, OK, 1,                                                                                          \
         name(handle, 0, 0, 4, 5, 6, S1, A, R_16F, 4, 24, B, R_16F, 6, 30, S0, C, R_32F, 4, 20, 3, AS_32F, -1));   \
    CASE("without handle", name, NOT_INITIALIZED, 0,                                                               \
         name(NONE, 0, 0, 4, 5, 6, S1, A, R_32F, 4, 24, B, R_32F, 6, 30, S0, C, R_32F, 4, 20, 3, AS_32F, -1));     \
    CASE("bad count", name, INVALID, 0,                                                                            \
         name(handle, 0, 0, 4, 5, 6, S1, A, R_32F, 4, 24, B, R_32F, 6, 30, S0, C, R_32F, 4, 20, -1, AS_32F, -1));  \
    CASE("mixed in a batch of none", name, NOT_SUPPORTED, 0,                                                       \
         name(handle, 0, 0, 4, 5, 6, S1, A, R_64F, 4, 24, B, R_32F, 6, 30, S0, C, R_32F, 4, 20, 0, AS_32F, -1));   \
    CASE("none", name, OK, 0,                                                                                      \
         name(handle, 0, 0, 4, 5, 6, S1, A, R_32F, 4, 24, B, R_32F, 6, 30, S0, C, R_32F, 4, 20, 0, AS_32F, -1));

#define TRY_SINGLE_EX(name, type, other)                                                                           \
    CASE("", name, OK, 1, name(handle, 0, 0, 4, 5, 6, S1, A, type, 4, B, type, 6, S0, C, type, 4));                \
    CASE("without handle", name, NOT_INITIALIZED, 0, name(NONE, 0, 0, 4, 5, 6, S1, A, type, 4, B, type, 6, S0, C, type, 4)); \
    CASE("another type", name, NOT_SUPPORTED, 0, name(handle, 0, 0, 4, 5, 6, S1, A, other, 4, B, other, 6, S0, C, other, 4)); \
    CASE("bad ldb", name, INVALID, 0, name(handle, 0, 0, 4, 5, 6, S1, A, type, 4, B, type, 5, S0, C, type, 4));

static void types(void)
{
    TRY_EX(cublasGemmEx)
    TRY_EX(cublasGemmEx_64)
    TRY_BATCHED_EX(cublasGemmBatchedEx)
    TRY_BATCHED_EX(cublasGemmBatchedEx_64)
    TRY_STRIDED_EX(cublasGemmStridedBatchedEx)
    TRY_STRIDED_EX(cublasGemmStridedBatchedEx_64)
    TRY_SINGLE_EX(cublasSgemmEx, R_32F, C_32F)
    TRY_SINGLE_EX(cublasSgemmEx_64, R_32F, R_64F)
    TRY_SINGLE_EX(cublasCgemmEx, C_32F, R_32F)
    TRY_SINGLE_EX(cublasCgemmEx_64, C_32F, C_64F)
}

/* --- handles ---------------------------------------------------------------------------------------- */

static void versions(void)
{
    int value = -1;
    check("cublasGetVersion_v2 without handle", cublasGetVersion_v2(NONE, &value), OK);
    check("the version's major", value / 10000, CUDA);
    check("cublasGetVersion_v2 null", cublasGetVersion_v2(NONE, NULL), INVALID);
    check("cublasGetProperty", cublasGetProperty(0, &value), OK);
    check("major", value, CUDA);
    check("cublasGetProperty of none", cublasGetProperty(3, &value), INVALID);
    check("cublasGetProperty null", cublasGetProperty(0, NULL), INVALID);
    check("cublasGetCudartVersion", (long long)cublasGetCudartVersion() / 1000, CUDA);
    check_text("cublasGetStatusName", cublasGetStatusName(13), "CUBLAS_STATUS_EXECUTION_FAILED");
    check_text("cublasGetStatusString", cublasGetStatusString(3), "the resource allocation failed");
    check_text("cublasGetStatusString of none", cublasGetStatusString(99), "unrecognized status");
    check("cublasLtGetVersion", (long long)cublasLtGetVersion() / 10000, CUDA);
    check("cublasLtGetCudartVersion", (long long)cublasLtGetCudartVersion() / 1000, CUDA);
    check("cublasLtGetProperty", cublasLtGetProperty(0, &value), OK);
    check("cublasLt's major", value, CUDA);
    check_text("cublasLtGetStatusName", cublasLtGetStatusName(15), "CUBLAS_STATUS_NOT_SUPPORTED");
    check_text("cublasLtGetStatusString", cublasLtGetStatusString(0), "success");
}

static void settings(void)
{
    int value = -1;
    void *stream = &value, *own = NULL;
    uint64_t before = messages(private);
    check("cublasGetPointerMode_v2", cublasGetPointerMode_v2(handle, &value), OK);
    check("scalars are on the host", value, 0);
    check("cublasSetPointerMode_v2", cublasSetPointerMode_v2(handle, 1), OK);
    check("cublasGetPointerMode_v2 again", cublasGetPointerMode_v2(handle, &value), OK);
    check("scalars are on the device", value, 1);
    check("cublasSetPointerMode_v2 bad", cublasSetPointerMode_v2(handle, 2), INVALID);
    check("cublasSetPointerMode_v2 without handle", cublasSetPointerMode_v2(NONE, 0), NOT_INITIALIZED);
    check("cublasGetPointerMode_v2 null", cublasGetPointerMode_v2(handle, NULL), INVALID);
    check("cublasGetAtomicsMode", cublasGetAtomicsMode(handle, &value), OK);
    check("no atomics", value, 0);
    check("cublasSetAtomicsMode", cublasSetAtomicsMode(handle, 1), OK);
    check("cublasSetAtomicsMode bad", cublasSetAtomicsMode(handle, 2), INVALID);
    check("cublasSetAtomicsMode without handle", cublasSetAtomicsMode(NONE, 0), NOT_INITIALIZED);
    check("cublasGetAtomicsMode null", cublasGetAtomicsMode(handle, NULL), INVALID);
    check("cublasGetMathMode", cublasGetMathMode(handle, &value), OK);
    check("default math", value, 0);
    check("cublasSetMathMode", cublasSetMathMode(handle, 3), OK);
    check("cublasSetMathMode with a flag", cublasSetMathMode(handle, 3 | 16), OK);
    check("cublasGetMathMode again", cublasGetMathMode(handle, &value), OK);
    check("as it was set", value, 19);
    check("cublasSetMathMode of one major", cublasSetMathMode(handle, 8), CUDA == 13 ? OK : INVALID);
    check("cublasSetMathMode bad", cublasSetMathMode(handle, 32), INVALID);
    check("cublasSetMathMode without handle", cublasSetMathMode(NONE, 0), NOT_INITIALIZED);
    check("cublasGetMathMode null", cublasGetMathMode(handle, NULL), INVALID);
    check("cublasGetMathMode without handle", cublasGetMathMode(NONE, &value), NOT_INITIALIZED);
    check("cublasGetStream_v2", cublasGetStream_v2(handle, &stream), OK);
    check_true("the default stream", stream == NULL);
    check("cublasGetStream_v2 null", cublasGetStream_v2(handle, NULL), INVALID);
    check("cublasSetStream_v2 without handle", cublasSetStream_v2(NONE, NULL), NOT_INITIALIZED);
    check("cublasSetWorkspace_v2", cublasSetWorkspace_v2(handle, A, 4096), OK);
    check("cublasSetWorkspace_v2 without handle", cublasSetWorkspace_v2(NONE, A, 4096), NOT_INITIALIZED);
    check("settings send nothing", (long long)(messages(private) - before), 0);

    CASE("with scalars on the device", cublasSgemm_v2, OK, 1, cublasSgemm_v2(handle, 0, 0, 4, 5, 0, A, A, 4, B, 1, B, C, 4));
    check("cublasSetPointerMode_v2 back", cublasSetPointerMode_v2(handle, 0), OK);
    settle();
    check("cuStreamCreate", cuStreamCreate(&own, 1), 0);
    check("cublasSetStream_v2", cublasSetStream_v2(handle, own), OK);
    check("cublasGetStream_v2 again", cublasGetStream_v2(handle, &stream), OK);
    check_true("the stream that was set", stream == own);
    CASE("on a stream", cublasSgemm_v2, OK, 1, cublasSgemm_v2(handle, 0, 0, 4, 4, 4, S1, A, 4, B, 4, S0, C, 4));
    check("cublasSetStream_v2 to none", cublasSetStream_v2(handle, (void *)0x1234560), OK);
    settle();
    check("on a stream that is none", cublasSgemm_v2(handle, 0, 0, 4, 4, 4, S1, A, 4, B, 4, S0, C, 4), EXECUTION_FAILED);
    check("cublasSetStream_v2 per thread", cublasSetStream_v2(handle, PER_THREAD), OK);
    (void)cublasSgemm_v2(handle, 0, 0, 4, 4, 4, S1, A, 4, B, 4, S0, C, 4); /* its first use makes that stream */
    CASE("on the thread's stream", cublasSgemm_v2, OK, 1, cublasSgemm_v2(handle, 0, 0, 4, 4, 4, S1, A, 4, B, 4, S0, C, 4));
    check("cublasSetStream_v2 back", cublasSetStream_v2(handle, NULL), OK);
    settle();
    check("cuStreamDestroy", cuStreamDestroy_v2(own), 0);
}

/* --- cuBLASLt --------------------------------------------------------------------------------------- */

static void lt(void)
{
    void *own = NULL, *desc = NULL, *a = NULL, *b = NULL, *c = NULL, *preference = NULL;
    uint64_t memory[32], value = 0;
    settle();
    int word = 4, found = -1;
    size_t size = 0;
    struct {
        uint64_t algorithm[8];
        size_t workspace;
        int state;
        float waves;
        int reserved[4];
    } result;
    check("cublasLtCreate null", cublasLtCreate(NULL), INVALID);
    check("cublasLtCreate", cublasLtCreate(&own), OK);
    check("cublasLtMatmulDescCreate", cublasLtMatmulDescCreate(&desc, AS_32F, R_32F), OK);
    check("cublasLtMatmulDescCreate null", cublasLtMatmulDescCreate(NULL, AS_32F, R_32F), INVALID);
    check("cublasLtMatrixLayoutCreate A", cublasLtMatrixLayoutCreate(&a, R_32F, 4, 6, 4), OK);
    check("cublasLtMatrixLayoutCreate B", cublasLtMatrixLayoutCreate(&b, R_32F, 6, 5, 6), OK);
    check("cublasLtMatrixLayoutCreate C", cublasLtMatrixLayoutCreate(&c, R_32F, 4, 5, 4), OK);
    check("cublasLtMatmulPreferenceCreate", cublasLtMatmulPreferenceCreate(&preference), OK);
    check("cublasLtMatmulDescGetAttribute size", cublasLtMatmulDescGetAttribute(desc, 7, NULL, 0, &size), OK);
    check("four bytes", (long long)size, 4);
    check("cublasLtMatmulDescGetAttribute", cublasLtMatmulDescGetAttribute(desc, 7, &value, 4, &size), OK);
    check("the default epilogue", (long long)value, 1);
    check("cublasLtMatmulDescGetAttribute small", cublasLtMatmulDescGetAttribute(desc, 8, &value, 4, &size), INVALID);
    check("cublasLtMatmulDescGetAttribute of none", cublasLtMatmulDescGetAttribute(desc, 9, &value, 4, &size), INVALID);
    check("cublasLtMatrixLayoutGetAttribute", cublasLtMatrixLayoutGetAttribute(a, 3, &value, 8, &size), OK);
    check("six columns", (long long)value, 6);
    check("cublasLtMatmulPreferenceGetAttribute", cublasLtMatmulPreferenceGetAttribute(preference, 12, &value, 8, NULL), OK);
    value = 1 << 20;
    check("cublasLtMatmulPreferenceSetAttribute", cublasLtMatmulPreferenceSetAttribute(preference, 1, &value, 8), OK);
    check("cublasLtMatmulPreferenceSetAttribute size", cublasLtMatmulPreferenceSetAttribute(preference, 1, &value, 4), INVALID);
    check("cublasLtMatmulDescInit_internal", cublasLtMatmulDescInit_internal(memory, sizeof memory, AS_32F, R_32F), OK);
    check("cublasLtMatmulDescInit_internal small", cublasLtMatmulDescInit_internal(memory, 8, AS_32F, R_32F), INVALID);
    check("cublasLtMatrixLayoutInit_internal", cublasLtMatrixLayoutInit_internal(memory, CUDA == 13 ? 112 : 64, R_32F, 4, 5, 4), OK);
    check("cublasLtMatrixLayoutSetAttribute of another kind", cublasLtMatmulDescSetAttribute(memory, 3, &word, 4), INVALID);
    check("cublasLtMatmulPreferenceInit_internal", cublasLtMatmulPreferenceInit_internal(memory, CUDA == 13 ? 96 : 64), OK);

    CASE("", cublasLtMatmul, OK, 1, cublasLtMatmul(own, desc, S1, A, a, B, b, S0, NULL, c, C, c, NULL, NULL, 0, NULL));
    CASE("with a handle of cuBLAS", cublasLtMatmul, OK, 1,
         cublasLtMatmul(handle, desc, S1, A, a, B, b, S1, C, c, C, c, NULL, A, 4096, NULL));
    CASE("without handle", cublasLtMatmul, NOT_INITIALIZED, 0,
         cublasLtMatmul(NONE, desc, S1, A, a, B, b, S0, C, c, C, c, NULL, NULL, 0, NULL));
    CASE("another C", cublasLtMatmul, NOT_SUPPORTED, 0,
         cublasLtMatmul(own, desc, S1, A, a, B, b, S1, B, c, C, c, NULL, NULL, 0, NULL));
    CASE("no product", cublasLtMatmul, INVALID, 0, cublasLtMatmul(own, NULL, S1, A, a, B, b, S0, C, c, C, c, NULL, NULL, 0, NULL));
    CASE("no layout", cublasLtMatmul, INVALID, 0, cublasLtMatmul(own, desc, S1, A, NULL, B, b, S0, C, c, C, c, NULL, NULL, 0, NULL));
    CASE("wrong shape", cublasLtMatmul, INVALID, 0, cublasLtMatmul(own, desc, S1, A, b, B, a, S0, C, c, C, c, NULL, NULL, 0, NULL));
    CASE("no alpha", cublasLtMatmul, INVALID, 0, cublasLtMatmul(own, desc, NULL, A, a, B, b, S0, C, c, C, c, NULL, NULL, 0, NULL));
    check("cublasLtMatmulAlgoGetHeuristic",
          cublasLtMatmulAlgoGetHeuristic(own, desc, a, b, c, c, preference, 8, &result, &found), OK);
    check("one algorithm", found, 1);
    check("its state", result.state, OK);
    CASE("with that algorithm", cublasLtMatmul, OK, 1,
         cublasLtMatmul(own, desc, S1, A, a, B, b, S0, C, c, C, c, result.algorithm, NULL, 0, NULL));
    check("cublasLtMatmulAlgoGetHeuristic none wanted",
          cublasLtMatmulAlgoGetHeuristic(own, desc, a, b, c, c, preference, 0, &result, &found), INVALID);
    check("cublasLtMatmulDescSetAttribute epilogue", cublasLtMatmulDescSetAttribute(desc, 7, &word, 4), OK);
    CASE("an epilogue", cublasLtMatmul, NOT_SUPPORTED, 0,
         cublasLtMatmul(own, desc, S1, A, a, B, b, S0, C, c, C, c, NULL, NULL, 0, NULL));
    check("cublasLtMatmulAlgoGetHeuristic for none",
          cublasLtMatmulAlgoGetHeuristic(own, desc, a, b, c, c, preference, 8, &result, &found), NOT_SUPPORTED);
    check("no algorithm", found, 0);
    word = 1;
    check("cublasLtMatrixLayoutSetAttribute rows", cublasLtMatrixLayoutSetAttribute(c, 1, &word, 4), OK);
    check("cublasLtMatmulDescDestroy", cublasLtMatmulDescDestroy(desc), OK);
    check("cublasLtMatmulDescDestroy null", cublasLtMatmulDescDestroy(NULL), OK);
    check("cublasLtMatrixLayoutDestroy of another kind", cublasLtMatrixLayoutDestroy(preference), INVALID);
    check("cublasLtMatrixLayoutDestroy", cublasLtMatrixLayoutDestroy(a) | cublasLtMatrixLayoutDestroy(b) | cublasLtMatrixLayoutDestroy(c), OK);
    check("cublasLtMatmulPreferenceDestroy", cublasLtMatmulPreferenceDestroy(preference), OK);
    check("cublasLtDestroy", cublasLtDestroy(own), OK);
    check("cublasLtDestroy null", cublasLtDestroy(NULL), INVALID);
    check("cublasLtDestroy of another handle", cublasLtDestroy(handle), INVALID);
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
    products = argc == 2 && strcmp(argv[1], "products") == 0;
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
    settings();
    families();
    types();
    solves();
    lt();
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
