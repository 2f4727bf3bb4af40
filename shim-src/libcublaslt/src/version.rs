//! Versions and texts: those of the libraries whose names the symbol lists hold, 12.9.3 and 13.10.0.

use std::ffi::{c_char, c_int};

use vgpu_abi::blas::{BlasStatus, Out};
use vgpu_abi::export;

use crate::CUDA13;

/// Major, minor, patch.
const VERSION: [c_int; 3] = if CUDA13 { [13, 10, 0] } else { [12, 9, 3] };
/// The same as one number.
const NUMBER: usize = if CUDA13 { 131_000 } else { 120_903 };
/// The CUDA runtime that NVIDIA's library was built with.
const CUDART: usize = if CUDA13 { 13000 } else { 12080 };

export! {
    /// The library's version: 10000 * major + 100 * minor + patch.
    pub fn cublasLtGetVersion() -> raw usize, NUMBER => {
        NUMBER
    }

    /// A part of the version: 0 major, 1 minor, 2 patch.
    pub fn cublasLtGetProperty(which: c_int, value: Out<c_int>) -> BlasStatus {
        let part = usize::try_from(which).ok().and_then(|which| VERSION.get(which));
        value.set(*part.ok_or(BlasStatus::INVALID_VALUE)?)
    }

    /// The version of the CUDA runtime that the library was built with.
    pub fn cublasLtGetCudartVersion() -> raw usize, CUDART => {
        CUDART
    }

    /// The name of a status.
    pub fn cublasLtGetStatusName(status: BlasStatus) -> raw *const c_char, c"".as_ptr() => {
        status.name().as_ptr()
    }

    /// The text of a status.
    pub fn cublasLtGetStatusString(status: BlasStatus) -> raw *const c_char, c"".as_ptr() => {
        status.text().as_ptr()
    }
}
