//! Versions and texts of the libraries from which the symbol lists were taken, 12.9.3 and 13.10.0.

use std::ffi::{c_char, c_int, c_void};

use vgpu_abi::blas::{BlasStatus, Out};
use vgpu_abi::export;

use crate::CUDA13;

/// Major version, minor version and patch level of the library.
const VERSION: [c_int; 3] = if CUDA13 { [13, 10, 0] } else { [12, 9, 3] };
/// Version of the CUDA runtime with which NVIDIA's library was built.
const CUDART: usize = if CUDA13 { 13000 } else { 12080 };

export! {
    /// Stores the library's version, 10000 * major + 100 * minor + patch. No handle is needed.
    pub fn cublasGetVersion_v2(_handle: *const c_void, version: Out<c_int>) -> BlasStatus {
        version.set(10000 * VERSION[0] + 100 * VERSION[1] + VERSION[2])
    }

    /// Stores one part of the version: 0 major, 1 minor, 2 patch.
    pub fn cublasGetProperty(which: c_int, value: Out<c_int>) -> BlasStatus {
        let part = usize::try_from(which).ok().and_then(|which| VERSION.get(which));
        value.set(*part.ok_or(BlasStatus::INVALID_VALUE)?)
    }

    /// Returns the version of the CUDA runtime with which the library was built.
    pub fn cublasGetCudartVersion() -> raw usize, CUDART => {
        CUDART
    }

    /// Returns the name of a status's constant in `cublas_api.h`.
    pub fn cublasGetStatusName(status: BlasStatus) -> raw *const c_char, c"".as_ptr() => {
        status.name().as_ptr()
    }

    /// Returns a sentence that describes a status.
    pub fn cublasGetStatusString(status: BlasStatus) -> raw *const c_char, c"".as_ptr() => {
        status.text().as_ptr()
    }
}
