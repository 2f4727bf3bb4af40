/* What is called of cuBLAS, cuBLASLt and the driver API, and the numbers of their enumerations. */
#ifndef VGPU_STANDINS_BLAS_API_H
#define VGPU_STANDINS_BLAS_API_H

#include <stdint.h>

#ifndef CUDA
#define CUDA 12
#endif

/* cublasStatus_t */
enum { OK, NOT_INITIALIZED, INVALID = 7, EXECUTION_FAILED = 13, NOT_SUPPORTED = 15 };
/* cudaDataType and cublasComputeType_t */
enum { R_32F, R_64F, R_16F, R_8I, C_32F, C_64F, R_32I = 10, R_16BF = 14 };
enum { AS_16F = 64, AS_32F = 68, AS_64F = 70, AS_32I = 72, AS_TF32 = 77, AS_64F_FIXED = 79 };

typedef int64_t l;
typedef const void *in;
typedef void *out;
typedef long long stride;
#define NONE ((void *)0)

int cuInit(unsigned), cuCtxSynchronize(void), cuStreamCreate(void **, unsigned), cuStreamDestroy_v2(void *);
int cuMemAlloc_v2(char **, size_t), cuMemsetD8_v2(char *, unsigned char, size_t);
int cuMemcpyHtoD_v2(char *, const void *, size_t), cuMemcpyDtoH_v2(void *, const char *, size_t);

int cublasCreate_v2(out *), cublasDestroy_v2(out), cublasGetVersion_v2(out, int *), cublasGetProperty(int, int *);
size_t cublasGetCudartVersion(void);
const char *cublasGetStatusName(int), *cublasGetStatusString(int);
int cublasSetStream_v2(out, out), cublasGetStream_v2(out, out *), cublasSetWorkspace_v2(out, out, size_t);
int cublasSetPointerMode_v2(out, int), cublasGetPointerMode_v2(out, int *), cublasSetAtomicsMode(out, int);
int cublasGetAtomicsMode(out, int *), cublasSetMathMode(out, int), cublasGetMathMode(out, int *);

/* The families: X(type letter, name with 32-bit sizes). Each also exists with 64-bit sizes. */
#define GEMM(X) X(S, cublasSgemm_v2) X(D, cublasDgemm_v2) X(Cc, cublasCgemm_v2) X(Z, cublasZgemm_v2) X(H, cublasHgemm)  \
    X(Cc, cublasCgemm3m) X(Z, cublasZgemm3m)
#define BATCHED(X)                                                                                                 \
    X(S, cublasSgemmBatched) X(D, cublasDgemmBatched) X(Cc, cublasCgemmBatched) X(Z, cublasZgemmBatched)           \
    X(H, cublasHgemmBatched) X(Cc, cublasCgemm3mBatched)
#define STRIDED(X)                                                                                                 \
    X(S, cublasSgemmStridedBatched) X(D, cublasDgemmStridedBatched) X(Cc, cublasCgemmStridedBatched)               \
    X(Z, cublasZgemmStridedBatched) X(H, cublasHgemmStridedBatched)                                             \
    X(Cc, cublasCgemm3mStridedBatched)
#define TRSM(X) X(S, cublasStrsm_v2) X(D, cublasDtrsm_v2) X(Cc, cublasCtrsm_v2) X(Z, cublasZtrsm_v2)
#define TRSM_BATCHED(X)                                                                                            \
    X(S, cublasStrsmBatched) X(D, cublasDtrsmBatched) X(Cc, cublasCtrsmBatched) X(Z, cublasZtrsmBatched)

#define DECLARE_GEMM(type, name)                                                                                   \
    int name(out, int, int, int, int, int, in, in, int, in, int, in, out, int);                                    \
    int name##_64(out, int, int, l, l, l, in, in, l, in, l, in, out, l);
GEMM(DECLARE_GEMM)
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
int cublasCgemm3mEx(out, int, int, int, int, int, in, in, int, int, in, int, int, in, out, int, int);
int cublasCgemm3mEx_64(out, int, int, l, l, l, in, in, int, l, in, int, l, in, out, int, l);
int cublasCgemmEx_64(out, int, int, l, l, l, in, in, int, l, in, int, l, in, out, int, l);

/* What is a product with a vector. */
#define GEMV(X) X(S, cublasSgemv_v2) X(D, cublasDgemv_v2) X(Cc, cublasCgemv_v2) X(Z, cublasZgemv_v2)
#define GEMV_BATCHED(X)                                                                                            \
    X(S, cublasSgemv) X(D, cublasDgemv) X(Cc, cublasCgemv) X(Z, cublasZgemv) X(S, cublasHSHgemv) X(S, cublasHSSgemv) \
    X(S, cublasTSTgemv) X(S, cublasTSSgemv)
#define SCAL(X) X(S, cublasSscal_v2) X(D, cublasDscal_v2) X(Cc, cublasCscal_v2) X(Z, cublasZscal_v2)
#define DECLARE_GEMV(type, name)                                                                                   \
    int name(out, int, int, int, in, in, int, in, int, in, out, int);                                              \
    int name##_64(out, int, l, l, in, in, l, in, l, in, out, l);
GEMV(DECLARE_GEMV)
#define DECLARE_GEMV_BATCHED(type, name)                                                                           \
    int name##Batched(out, int, int, int, in, in, int, in, int, in, out, int, int);                                \
    int name##Batched_64(out, int, l, l, in, in, l, in, l, in, out, l, l);                                         \
    int name##StridedBatched(out, int, int, int, in, in, int, stride, in, int, stride, in, out, int, stride, int); \
    int name##StridedBatched_64(out, int, l, l, in, in, l, stride, in, l, stride, in, out, l, stride, l);
GEMV_BATCHED(DECLARE_GEMV_BATCHED)
#define DECLARE_SCAL(type, name) int name(out, int, in, out, int), name##_64(out, l, in, out, l);
SCAL(DECLARE_SCAL)

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

#endif
