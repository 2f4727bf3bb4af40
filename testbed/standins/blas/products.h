/* Each form of matrix products and triangular solves: what it refuses, and that it is one message. */

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
    CASE("", name, OK, 1, name(handle, 0, 2, 4, 5, 6, type##1, AA, 4, BB, 5, type##0, CC, 4, 3));                     \
    CASE("without handle", name, NOT_INITIALIZED, 0, name(NONE, 0, 0, 4, 5, 6, type##1, AA, 4, BB, 6, type##0, CC, 4, 3)); \
    CASE("bad operation", name, INVALID, 0, name(handle, 0, 4, 4, 5, 6, type##1, AA, 4, BB, 6, type##0, CC, 4, 3));   \
    CASE("bad count", name, INVALID, 0, name(handle, 0, 0, 4, 5, 6, type##1, AA, 4, BB, 6, type##0, CC, 4, -3));      \
    CASE("none", name, OK, 0, name(handle, 0, 0, 4, 5, 6, type##1, AA, 4, BB, 6, type##0, CC, 4, 0));                 \
    CASE("bad lda", name, INVALID, 0, name(handle, 1, 0, 4, 5, 6, type##1, AA, 5, BB, 6, type##0, CC, 4, 3));         \
    CASE("no alpha", name, INVALID, 0, name(handle, 0, 0, 4, 5, 6, NONE, AA, 4, BB, 6, type##0, CC, 4, 3));

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
    CASE("", name, OK, 1, name(handle, 0, 0, 0, 0, 8, 4, type##1, AA, 8, CC, 8, 2));                                 \
    CASE("without handle", name, NOT_INITIALIZED, 0, name(NONE, 0, 0, 0, 0, 8, 4, type##1, AA, 8, CC, 8, 2));        \
    CASE("bad side", name, INVALID, 0, name(handle, -1, 0, 0, 0, 8, 4, type##1, AA, 8, CC, 8, 2));                   \
    CASE("bad ldb", name, INVALID, 0, name(handle, 1, 0, 0, 0, 8, 4, type##1, AA, 8, CC, 7, 2));                     \
    CASE("bad count", name, INVALID, 0, name(handle, 0, 0, 0, 0, 8, 4, type##1, AA, 8, CC, 8, -2));                  \
    CASE("none", name, OK, 0, name(handle, 0, 0, 0, 0, 8, 4, type##1, AA, 8, CC, 8, 0));                             \
    CASE("no alpha", name, INVALID, 0, name(handle, 0, 0, 0, 0, 8, 4, NONE, AA, 8, CC, 8, 2));

#define TRY_GEMV(type, name)                                                                                       \
    CASE("", name, OK, 1, name(handle, 0, 4, 5, type##1, A, 4, B, 1, type##0, C, 1));                              \
    CASE("with gaps", name, OK, 1, name(handle, 1, 4, 5, type##1, A, 6, B, 2, type##1, C, 3));                     \
    CASE("without handle", name, NOT_INITIALIZED, 0, name(NONE, 0, 4, 5, type##1, A, 4, B, 1, type##0, C, 1));     \
    CASE("bad operation", name, INVALID, 0, name(handle, 3, 4, 5, type##1, A, 4, B, 1, type##0, C, 1));            \
    CASE("bad size", name, INVALID, 0, name(handle, 0, 4, -5, type##1, A, 4, B, 1, type##0, C, 1));                \
    CASE("bad lda", name, INVALID, 0, name(handle, 0, 4, 5, type##1, A, 3, B, 1, type##0, C, 1));                  \
    CASE("bad increment", name, INVALID, 0, name(handle, 0, 4, 5, type##1, A, 4, B, 0, type##0, C, 1));            \
    CASE("backwards", name, NOT_SUPPORTED, 0, name(handle, 0, 4, 5, type##1, A, 4, B, -1, type##0, C, 1));         \
    CASE("no alpha", name, INVALID, 0, name(handle, 0, 4, 5, NONE, A, 4, B, 1, type##0, C, 1));                    \
    CASE("empty", name, OK, 0, name(handle, 0, 4, 0, NONE, A, 4, B, 1, NONE, C, 1));

#define TRY_GEMV_BATCHED(type, name)                                                                               \
    CASE("", name, OK, 1, name(handle, 0, 4, 5, type##1, AA, 4, BB, 1, type##0, CC, 1, 3));                        \
    CASE("without handle", name, NOT_INITIALIZED, 0, name(NONE, 0, 4, 5, type##1, AA, 4, BB, 1, type##0, CC, 1, 3)); \
    CASE("bad count", name, INVALID, 0, name(handle, 0, 4, 5, type##1, AA, 4, BB, 1, type##0, CC, 1, -3));         \
    CASE("none", name, OK, 0, name(handle, 0, 4, 5, type##1, AA, 4, BB, 1, type##0, CC, 1, 0));

#define TRY_GEMV_STRIDED(type, name)                                                                               \
    CASE("", name, OK, 1, name(handle, 0, 4, 5, type##1, A, 4, 20, B, 1, -5, type##0, C, 1, 4, 3));                \
    CASE("without handle", name, NOT_INITIALIZED, 0, name(NONE, 0, 4, 5, type##1, A, 4, 20, B, 1, 5, type##0, C, 1, 4, 3)); \
    CASE("bad count", name, INVALID, 0, name(handle, 0, 4, 5, type##1, A, 4, 20, B, 1, 5, type##0, C, 1, 4, -3));  \
    CASE("none", name, OK, 0, name(handle, 0, 4, 5, type##1, A, 4, 20, B, 1, 5, type##0, C, 1, 4, 0));

#define TRY_SCAL(type, name)                                                                                       \
    CASE("", name, OK, 1, name(handle, 5, type##0, C, 2));                                                         \
    CASE("by one", name, OK, 0, name(handle, 5, type##1, C, 2));                                                   \
    CASE("without handle", name, NOT_INITIALIZED, 0, name(NONE, 5, type##0, C, 2));                                \
    CASE("nothing", name, OK, 0, name(handle, 0, type##0, C, 2));                                                  \
    CASE("no alpha", name, INVALID, 0, name(handle, 5, NONE, C, 2));

#define BOTH(TRY, type, name) TRY(type, name) TRY(type, name##_64)
#define EACH_GEMM(type, name) BOTH(TRY_GEMM, type, name)
#define EACH_BATCHED(type, name) BOTH(TRY_BATCHED, type, name)
#define EACH_STRIDED(type, name) BOTH(TRY_STRIDED, type, name)
#define EACH_TRSM(type, name) BOTH(TRY_TRSM, type, name)
#define EACH_TRSM_BATCHED(type, name) BOTH(TRY_TRSM_BATCHED, type, name)

#define EACH_GEMV(type, name) BOTH(TRY_GEMV, type, name)
#define EACH_GEMV_BATCHED(type, name) BOTH(TRY_GEMV_BATCHED, type, name##Batched) BOTH(TRY_GEMV_STRIDED, type, name##StridedBatched)
#define EACH_SCAL(type, name) BOTH(TRY_SCAL, type, name)

static void families(void)
{
    GEMM(EACH_GEMM)
    BATCHED(EACH_BATCHED)
    STRIDED(EACH_STRIDED)
    GEMV(EACH_GEMV)
    GEMV_BATCHED(EACH_GEMV_BATCHED)
    SCAL(EACH_SCAL)
}

static void solves(void)
{
    TRSM(EACH_TRSM)
    TRSM_BATCHED(EACH_TRSM_BATCHED)
}

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
    CASE("", name, OK, 1, name(handle, 0, 0, 4, 5, 6, S1, AA, R_16F, 4, BB, R_16F, 6, S0, CC, R_16F, 4, 3, AS_32F, -1)); \
    CASE("without handle", name, NOT_INITIALIZED, 0,                                                               \
         name(NONE, 0, 0, 4, 5, 6, S1, AA, R_32F, 4, BB, R_32F, 6, S0, CC, R_32F, 4, 3, AS_32F, -1));                 \
    CASE("mixed", name, NOT_SUPPORTED, 0,                                                                          \
         name(handle, 0, 0, 4, 5, 6, S1, AA, R_32F, 4, BB, R_16F, 6, S0, CC, R_32F, 4, 3, AS_32F, -1));               \
    CASE("bad count", name, INVALID, 0, name(handle, 0, 0, 4, 5, 6, S1, AA, R_32F, 4, BB, R_32F, 6, S0, CC, R_32F, 4, -3, AS_32F, -1)); \
    CASE("none", name, OK, 0, name(handle, 0, 0, 4, 5, 6, S1, AA, R_32F, 4, BB, R_32F, 6, S0, CC, R_32F, 4, 0, AS_32F, -1)); \
    CASE("bad lda", name, INVALID, 0, name(handle, 0, 0, 4, 5, 6, S1, AA, R_32F, 3, BB, R_32F, 6, S0, CC, R_32F, 4, 0, AS_32F, -1));

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
    TRY_SINGLE_EX(cublasCgemm3mEx, C_32F, R_32F)
    TRY_SINGLE_EX(cublasCgemm3mEx_64, C_32F, C_64F)
}
