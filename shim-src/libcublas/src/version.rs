//! Versions and texts: those of the libraries whose names the symbol lists hold, 12.9.3 and 13.10.0.

use std::ffi::{c_char, c_int, c_void};

use vgpu_abi::blas::{BlasStatus, Out};
use vgpu_abi::export;

use crate::CUDA13;

/// Major, minor, patch.
const VERSION: [c_int; 3] = if CUDA13 { [13, 10, 0] } else { [12, 9, 3] };
/// The CUDA runtime that NVIDIA's library was built with.
const CUDART: usize = if CUDA13 { 13000 } else { 12080 };

export! {
    /// The library's version: 10000 * major + 100 * minor + patch. A handle is not needed.
    pub fn cublasGetVersion_v2(_handle: *const c_void, version: Out<c_int>) -> BlasStatus {
        version.set(10000 * VERSION[0] + 100 * VERSION[1] + VERSION[2])
    }

    /// A part of the version: 0 major, 1 minor, 2 patch.
    pub fn cublasGetProperty(which: c_int, value: Out<c_int>) -> BlasStatus {
        let part = usize::try_from(which).ok().and_then(|which| VERSION.get(which));
        value.set(*part.ok_or(BlasStatus::INVALID_VALUE)?)
    }

    /// The version of the CUDA runtime that the library was built with.
    pub fn cublasGetCudartVersion() -> raw usize, CUDART => {
        CUDART
    }

    /// The name of a status.
    pub fn cublasGetStatusName(status: BlasStatus) -> raw *const c_char, c"".as_ptr() => {
        status.name().as_ptr()
    }

    /// The text of a status.
    pub fn cublasGetStatusString(status: BlasStatus) -> raw *const c_char, c"".as_ptr() => {
        status.text().as_ptr()
    }
}
