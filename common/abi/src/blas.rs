//! Types and codes of cuBLAS and cuBLASLt (`cublas_api.h`, `cublasLt.h`), which the two libraries share.
//!
//! CUDA 12 and 13 agree in everything here, except where a function takes the major version as an argument.

mod arg;
mod driver;
mod matmul;
mod modes;
mod status;
mod types;

pub use arg::{Address, Factor, Out, Place};
pub use driver::Driver;
pub use matmul::{
    CUBLAS_COOKIE, CUBLASLT_COOKIE, MATMUL_DESC_BYTES, MatmulAlgo, MatmulHeuristicResult,
    matmul_preference_bytes, matrix_layout_bytes,
};
pub use modes::{
    GEMM_DEFAULT, MATH_DISALLOW_REDUCED_PRECISION_REDUCTION, OP_C, OP_N, OP_T, POINTER_MODE_DEVICE,
    POINTER_MODE_HOST, SIDE_LEFT, SIDE_RIGHT, is_algorithm, is_math_mode,
};
pub use status::BlasStatus;
pub use types::{Arithmetic, Scalar, arithmetic, canonical_compute, compute, data, element_bytes};
