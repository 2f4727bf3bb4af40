//! Versions and texts of the libraries from which the symbol lists were taken, 12.9.3 and 13.10.0.

use std::ffi::{c_char, c_int};

use vgpu_abi::blas::{BlasStatus, Out};
use vgpu_abi::export;

use crate::CUDA13;

/// Major version, minor version and patch level of the library.
const VERSION: [c_int; 3] = if CUDA13 { [13, 10, 0] } else { [12, 9, 3] };
/// The version as one number, 10000 * major + 100 * minor + patch.
const NUMBER: usize = if CUDA13 { 131_000 } else { 120_903 };
/// Version of the CUDA runtime with which NVIDIA's library was built.
const CUDART: usize = if CUDA13 { 13000 } else { 12080 };

export! {
    /// Returns the library's version, 10000 * major + 100 * minor + patch.
    pub fn cublasLtGetVersion() -> raw usize, NUMBER => {
        NUMBER
    }

    /// Stores one part of the version: 0 major, 1 minor, 2 patch.
    pub fn cublasLtGetProperty(which: c_int, value: Out<c_int>) -> BlasStatus {
        let part = usize::try_from(which).ok().and_then(|which| VERSION.get(which));
        value.set(*part.ok_or(BlasStatus::INVALID_VALUE)?)
    }

    /// Returns the version of the CUDA runtime with which the library was built.
    pub fn cublasLtGetCudartVersion() -> raw usize, CUDART => {
        CUDART
    }

    /// Returns the name of a status's constant in `cublas_api.h`.
    pub fn cublasLtGetStatusName(status: BlasStatus) -> raw *const c_char, c"".as_ptr() => {
        status.name().as_ptr()
    }

    /// Returns a sentence that describes a status.
    pub fn cublasLtGetStatusString(status: BlasStatus) -> raw *const c_char, c"".as_ptr() => {
        status.text().as_ptr()
    }
}
