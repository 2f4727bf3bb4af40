//! The `CUresult` codes that this crate distinguishes or returns. `vgpu_abi` has all of them, but programs
//! without CUDA's types link this crate.

/// `CUDA_ERROR_INVALID_VALUE`: an argument is outside its range.
pub(crate) const INVALID_VALUE: u32 = 1;
/// `CUDA_ERROR_OUT_OF_MEMORY`: the host or the window has no more memory.
pub(crate) const OUT_OF_MEMORY: u32 = 2;
/// `CUDA_ERROR_INVALID_CONTEXT`: the context of the session has ended.
pub(crate) const INVALID_CONTEXT: u32 = 201;
/// `CUDA_ERROR_INVALID_HANDLE`: a number names no object of the session.
pub(crate) const INVALID_HANDLE: u32 = 400;
/// `CUDA_ERROR_LAUNCH_FAILED`: a kernel failed, which ends the context.
pub(crate) const LAUNCH_FAILED: u32 = 719;
/// `CUDA_ERROR_NOT_SUPPORTED`: no call of version 1 can express the request.
pub(crate) const NOT_SUPPORTED: u32 = 801;
/// `CUDA_ERROR_UNKNOWN`: the host returned an error that has no better code.
pub(crate) const UNKNOWN: u32 = 999;
