//! Numbers of cuBLAS's enumerations, and which of them a library accepts.

use core::ffi::c_int;

/// `cublasOperation_t`: the operand is used as stored.
pub const OP_N: c_int = 0;
/// `cublasOperation_t`: the operand is transposed.
pub const OP_T: c_int = 1;
/// `cublasOperation_t`: the operand is conjugated and transposed.
pub const OP_C: c_int = 2;

/// `cublasPointerMode_t`: scalars are in host memory.
pub const POINTER_MODE_HOST: c_int = 0;
/// `cublasPointerMode_t`: scalars are in device memory.
pub const POINTER_MODE_DEVICE: c_int = 1;

/// `cublasSideMode_t`: the triangle stands left of the unknowns.
pub const SIDE_LEFT: c_int = 0;
/// `cublasSideMode_t`: the triangle stands right of the unknowns.
pub const SIDE_RIGHT: c_int = 1;

/// `cublasMath_t`: a bit that may be combined with a mode.
pub const MATH_DISALLOW_REDUCED_PRECISION_REDUCTION: c_int = 16;

/// `CUBLAS_GEMM_DEFAULT`, a `cublasGemmAlgo_t`.
pub const GEMM_DEFAULT: c_int = -1;

/// Returns whether `algorithm` is a `cublasGemmAlgo_t`. `CUBLAS_GEMM_AUTOTUNE` came with CUDA 13.
#[must_use]
pub const fn is_algorithm(algorithm: c_int, cuda13: bool) -> bool {
    matches!(algorithm, -1..=23 | 99..=115) || (cuda13 && algorithm == 999)
}

/// Returns whether `mode` is a `cublasMath_t`. Measured: CUDA 12's library takes the modes that its header
/// names, with and without [`MATH_DISALLOW_REDUCED_PRECISION_REDUCTION`]; CUDA 13's every combination of the
/// low five bits.
#[must_use]
pub const fn is_math_mode(mode: c_int, cuda13: bool) -> bool {
    if cuda13 {
        matches!(mode, 0..=31)
    } else {
        matches!(mode & !MATH_DISALLOW_REDUCED_PRECISION_REDUCTION, 0..=4)
    }
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
