//! Types and codes of cuBLAS and cuBLASLt (`cublas_api.h`, `cublasLt.h`), which the two libraries share.
//!
//! CUDA 12 and 13 agree in everything here but for what a function that depends on it says.

mod arg;
mod driver;
mod status;
mod types;

pub use arg::{Address, Factor, Out};
pub use driver::Driver;
pub use status::BlasStatus;
pub use types::{Arithmetic, Scalar, arithmetic, canonical_compute, compute, data, element_bytes};

use core::ffi::c_int;
use core::mem::offset_of;

/// `cublasOperation_t`: as it is.
pub const OP_N: c_int = 0;
/// `cublasOperation_t`: transposed.
pub const OP_T: c_int = 1;
/// `cublasOperation_t`: conjugated and transposed.
pub const OP_C: c_int = 2;

/// `cublasPointerMode_t`: scalars are in host memory.
pub const POINTER_MODE_HOST: c_int = 0;
/// `cublasPointerMode_t`: scalars are in device memory.
pub const POINTER_MODE_DEVICE: c_int = 1;

/// `cublasSideMode_t`: the triangle stands left of the unknowns.
pub const SIDE_LEFT: c_int = 0;
/// `cublasSideMode_t`: the triangle stands right of the unknowns.
pub const SIDE_RIGHT: c_int = 1;

/// `cublasMath_t`: the bit that may be added to a mode.
pub const MATH_DISALLOW_REDUCED_PRECISION_REDUCTION: c_int = 16;

/// `CUBLAS_GEMM_DEFAULT`, a `cublasGemmAlgo_t`.
pub const GEMM_DEFAULT: c_int = -1;

/// Whether `algorithm` is a `cublasGemmAlgo_t`. `CUBLAS_GEMM_AUTOTUNE` came with CUDA 13.
#[must_use]
pub const fn is_algorithm(algorithm: c_int, cuda13: bool) -> bool {
    matches!(algorithm, -1..=23 | 99..=115) || (cuda13 && algorithm == 999)
}

/// Whether `mode` is a `cublasMath_t`. Measured: CUDA 12's library takes the modes that its header names,
/// with and without [`MATH_DISALLOW_REDUCED_PRECISION_REDUCTION`]; CUDA 13's every combination of the low
/// five bits.
#[must_use]
pub const fn is_math_mode(mode: c_int, cuda13: bool) -> bool {
    if cuda13 {
        matches!(mode, 0..=31)
    } else {
        matches!(mode & !MATH_DISALLOW_REDUCED_PRECISION_REDUCTION, 0..=4)
    }
}

/// First word of what a live `cublasHandle_t` points to.
pub const CUBLAS_COOKIE: u64 = 0x7667_7075_626c_6173;
/// First word of what a live `cublasLtHandle_t` points to. A `cublasHandle_t` may be given in its place.
pub const CUBLASLT_COOKIE: u64 = 0x7667_7075_626c_7468;

/// `cublasLtMatmulAlgo_t`: opaque to programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct MatmulAlgo {
    /// The library's own.
    pub data: [u64; 8],
}

/// `cublasLtMatmulHeuristicResult_t`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct MatmulHeuristicResult {
    /// The algorithm.
    pub algo: MatmulAlgo,
    /// Workspace that it needs, bytes.
    pub workspace_bytes: usize,
    /// Whether the rest is valid.
    pub state: BlasStatus,
    /// How often the device is filled.
    pub waves: f32,
    /// Unused.
    pub reserved: [c_int; 4],
}

const _: () = {
    assert!(size_of::<MatmulAlgo>() == 64);
    assert!(size_of::<MatmulHeuristicResult>() == 96);
    assert!(offset_of!(MatmulHeuristicResult, workspace_bytes) == 64);
    assert!(offset_of!(MatmulHeuristicResult, state) == 72);
    assert!(offset_of!(MatmulHeuristicResult, waves) == 76);
    assert!(offset_of!(MatmulHeuristicResult, reserved) == 80);
};

/// Size of `cublasLtMatmulDescOpaque_t`.
pub const MATMUL_DESC_BYTES: usize = 256;

/// Size of `cublasLtMatrixLayoutOpaque_t`.
#[must_use]
pub const fn matrix_layout_bytes(cuda13: bool) -> usize {
    if cuda13 { 112 } else { 64 }
}

/// Size of `cublasLtMatmulPreferenceOpaque_t`.
#[must_use]
pub const fn matmul_preference_bytes(cuda13: bool) -> usize {
    if cuda13 { 96 } else { 64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn algorithms_are_those_of_the_header() {
        // The list of cublasGemmAlgo_t's values, by which the ranges were chosen.
        let listed: Vec<c_int> = (-1..=23).chain(99..=115).collect();
        for algorithm in -10..1100 {
            assert_eq!(is_algorithm(algorithm, false), listed.contains(&algorithm), "{algorithm}");
            assert_eq!(is_algorithm(algorithm, true), listed.contains(&algorithm) || algorithm == 999);
        }
    }

    #[test]
    fn math_modes_are_those_that_the_libraries_take() {
        let twelve: Vec<c_int> = (-40..80).filter(|&mode| is_math_mode(mode, false)).collect();
        assert_eq!(twelve, [0, 1, 2, 3, 4, 16, 17, 18, 19, 20]);
        let thirteen: Vec<c_int> = (-40..80).filter(|&mode| is_math_mode(mode, true)).collect();
        assert_eq!(thirteen, (0..32).collect::<Vec<_>>());
    }
}
