//! Signatures of cuBLAS's functions as in `cublas_v2.h`, in the forms with 64-bit sizes, which came with CUDA
//! 12.
//!
//! Addresses of operands and handles are pointers in the header. Here they are numbers of the same size,
//! because nothing that this process may read lies behind them.

use std::ffi::{c_int, c_void};

use vgpu_abi::blas::{BlasStatus, MatmulAlgo, MatmulHeuristicResult};
use vgpu_abi::driver::CUstream;

/// A `cublasHandle_t` as a number.
pub(crate) type RawBlasHandle = usize;
/// A `cublasLtMatmulDesc_t`, `cublasLtMatrixLayout_t` or `cublasLtMatmulPreference_t` as a number.
pub(crate) type Record = usize;
/// Device address of an operand, a result, a workspace or an array of addresses.
type At = u64;
/// Address of alpha or beta: host memory, or device memory in the pointer mode for that.
type Factor = *const c_void;

/// Declares types of function pointers, named as cuBLAS names the functions.
macro_rules! functions {
    ($( $name:ident ( $($arg:ty),* $(,)? ); )*) => { $(
        #[doc = concat!("`", stringify!($name), "`")]
        #[allow(non_camel_case_types, reason = "the name is cuBLAS's")]
        pub(crate) type $name = unsafe extern "C" fn($($arg),*) -> BlasStatus;
    )* };
}

/// Type of `cublas<t>trsm`: handle; side, fill mode, operation, diagonal; m, n; alpha; A, leading dimension;
/// B.
type Trsm = unsafe extern "C" fn(
    RawBlasHandle,
    c_int,
    c_int,
    c_int,
    c_int,
    i64,
    i64,
    Factor,
    At,
    i64,
    At,
    i64,
) -> BlasStatus;
/// Type of `cublas<t>trsmBatched`, which takes arrays of addresses, and their number as the last argument.
type TrsmBatched = unsafe extern "C" fn(
    RawBlasHandle,
    c_int,
    c_int,
    c_int,
    c_int,
    i64,
    i64,
    Factor,
    At,
    i64,
    At,
    i64,
    i64,
) -> BlasStatus;
/// Type of `cublas<t>asum`: handle; n; x, increment; address of the sum.
type Asum = unsafe extern "C" fn(RawBlasHandle, i64, At, i64, At) -> BlasStatus;

/// Declares types of functions that differ only in their element type.
macro_rules! same {
    ($ty:ident: $($name:ident)*) => { $(
        #[doc = concat!("`", stringify!($name), "`")]
        #[allow(non_camel_case_types, reason = "the name is cuBLAS's")]
        pub(crate) type $name = $ty;
    )* };
}

same! { Trsm: cublasStrsm_v2_64 cublasDtrsm_v2_64 cublasCtrsm_v2_64 cublasZtrsm_v2_64 }
same! { TrsmBatched:
    cublasStrsmBatched_64 cublasDtrsmBatched_64 cublasCtrsmBatched_64 cublasZtrsmBatched_64
}
same! { Asum: cublasSasum_v2_64 cublasDasum_v2_64 cublasScasum_v2_64 cublasDzasum_v2_64 }

functions! {
    cublasCreate_v2(*mut RawBlasHandle);
    cublasDestroy_v2(RawBlasHandle);
    cublasSetStream_v2(RawBlasHandle, CUstream);
    cublasSetWorkspace_v2(RawBlasHandle, At, usize);
    cublasSetPointerMode_v2(RawBlasHandle, c_int);
    cublasSetMathMode(RawBlasHandle, c_int);
    // Handle; operations on A and B; m, n, k; alpha; A, type, leading dimension; B; beta; C; compute type,
    // algorithm.
    cublasGemmEx_64(
        RawBlasHandle, c_int, c_int, i64, i64, i64, Factor, At, c_int, i64, At, c_int, i64, Factor, At, c_int,
        i64, c_int, c_int,
    );
    // The same with arrays of addresses, and the number of products before compute type and algorithm.
    cublasGemmBatchedEx_64(
        RawBlasHandle, c_int, c_int, i64, i64, i64, Factor, At, c_int, i64, At, c_int, i64, Factor, At, c_int,
        i64, i64, c_int, c_int,
    );
    // The same with a stride behind each leading dimension.
    cublasGemmStridedBatchedEx_64(
        RawBlasHandle, c_int, c_int, i64, i64, i64, Factor, At, c_int, i64, i64, At, c_int, i64, i64, Factor,
        At, c_int, i64, i64, i64, c_int, c_int,
    );
    // Handle; n; x, type, increment; y; place of the sum, its type; compute type.
    cublasDotEx_64(RawBlasHandle, i64, At, c_int, i64, At, c_int, i64, At, c_int, c_int);
    cublasDotcEx_64(RawBlasHandle, i64, At, c_int, i64, At, c_int, i64, At, c_int, c_int);
    cublasNrm2Ex_64(RawBlasHandle, i64, At, c_int, i64, At, c_int, c_int);
    // Of cuBLASLt. A product: compute type, type of alpha and beta.
    cublasLtMatmulDescCreate(*mut Record, c_int, c_int);
    cublasLtMatmulDescSetAttribute(Record, c_int, *const c_void, usize);
    cublasLtMatmulDescDestroy(Record);
    // A matrix: type, rows, columns, leading dimension.
    cublasLtMatrixLayoutCreate(*mut Record, c_int, u64, u64, i64);
    cublasLtMatrixLayoutSetAttribute(Record, c_int, *const c_void, usize);
    cublasLtMatrixLayoutDestroy(Record);
    cublasLtMatmulPreferenceCreate(*mut Record);
    cublasLtMatmulPreferenceSetAttribute(Record, c_int, *const c_void, usize);
    cublasLtMatmulPreferenceDestroy(Record);
    // Handle; product; A, B, C, D; preference; how many are wanted; the algorithms; how many there are.
    cublasLtMatmulAlgoGetHeuristic(
        RawBlasHandle, Record, Record, Record, Record, Record, Record, c_int, *mut MatmulHeuristicResult,
        *mut c_int,
    );
    // Handle; product; alpha; A; B; beta; C; D; algorithm; workspace; stream.
    cublasLtMatmul(
        RawBlasHandle, Record, Factor, At, Record, At, Record, Factor, At, Record, At, Record,
        *const MatmulAlgo, At, usize, CUstream,
    );
    // Handle; n; alpha, its type; x, type, increment; y; compute type.
    cublasAxpyEx_64(RawBlasHandle, i64, Factor, c_int, At, c_int, i64, At, c_int, i64, c_int);
}
