//! The `CUresult` codes that this crate distinguishes or returns. `vgpu_abi` has all of them, but programs
//! without CUDA's types link this crate.

/// `CUDA_ERROR_INVALID_VALUE`
pub(crate) const INVALID_VALUE: u32 = 1;
/// `CUDA_ERROR_OUT_OF_MEMORY`
pub(crate) const OUT_OF_MEMORY: u32 = 2;
/// `CUDA_ERROR_INVALID_CONTEXT`
pub(crate) const INVALID_CONTEXT: u32 = 201;
/// `CUDA_ERROR_INVALID_HANDLE`
pub(crate) const INVALID_HANDLE: u32 = 400;
/// `CUDA_ERROR_LAUNCH_FAILED`
pub(crate) const LAUNCH_FAILED: u32 = 719;
/// `CUDA_ERROR_NOT_SUPPORTED`
pub(crate) const NOT_SUPPORTED: u32 = 801;
/// `CUDA_ERROR_UNKNOWN`
pub(crate) const UNKNOWN: u32 = 999;
