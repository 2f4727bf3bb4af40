//! Handles and structures that cuBLAS and cuBLASLt return to programs.

use core::ffi::c_int;
use core::mem::offset_of;

use super::status::BlasStatus;

/// First word of the memory that a live `cublasHandle_t` points to.
pub const CUBLAS_COOKIE: u64 = 0x7667_7075_626c_6173;
/// First word of the memory that a live `cublasLtHandle_t` points to. Programs may pass a `cublasHandle_t`
/// instead.
pub const CUBLASLT_COOKIE: u64 = 0x7667_7075_626c_7468;

/// `cublasLtMatmulAlgo_t`, whose contents are opaque to programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct MatmulAlgo {
    /// Contents that only the library reads.
    pub data: [u64; 8],
}

/// `cublasLtMatmulHeuristicResult_t`, one algorithm that `cublasLtMatmulAlgoGetHeuristic` proposes.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct MatmulHeuristicResult {
    /// The algorithm's opaque contents, which the caller passes to `cublasLtMatmul`.
    pub algo: MatmulAlgo,
    /// Size in bytes of the workspace that the algorithm needs.
    pub workspace_bytes: usize,
    /// Status of this result; the other fields are valid only if it is success.
    pub state: BlasStatus,
    /// Number of times that the product's blocks fill the device (`wavesCount`).
    pub waves: f32,
    /// Reserved by cuBLASLt; not written.
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

/// Size of `cublasLtMatmulDescOpaque_t` in bytes.
pub const MATMUL_DESC_BYTES: usize = 256;

/// Returns the size of `cublasLtMatrixLayoutOpaque_t` in bytes.
#[must_use]
pub const fn matrix_layout_bytes(cuda13: bool) -> usize {
    if cuda13 { 112 } else { 64 }
}

/// Returns the size of `cublasLtMatmulPreferenceOpaque_t` in bytes.
#[must_use]
pub const fn matmul_preference_bytes(cuda13: bool) -> usize {
    if cuda13 { 96 } else { 64 }
}
