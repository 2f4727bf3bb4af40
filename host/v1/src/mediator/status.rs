//! `CUresult` and `cublasStatus_t` values that a mediator returns by itself. The names are CUDA's without
//! `CUDA_ERROR_`.

pub(super) const INVALID_VALUE: u32 = 1;
pub(super) const OUT_OF_MEMORY: u32 = 2;
pub(super) const INVALID_IMAGE: u32 = 200;
pub(super) const NO_BINARY_FOR_GPU: u32 = 209;
pub(super) const INVALID_PTX: u32 = 218;
pub(super) const INVALID_HANDLE: u32 = 400;
pub(super) const NOT_FOUND: u32 = 500;
pub(super) const NOT_READY: u32 = 600;
pub(super) const NOT_SUPPORTED: u32 = 801;
pub(super) const UNKNOWN: u32 = 999;

/// The `cublasStatus_t` values, by their names without `CUBLAS_STATUS_`.
pub(super) mod cublas {
    pub(in super::super) const SUCCESS: u64 = 0;
    pub(in super::super) const NOT_INITIALIZED: u64 = 1;
    pub(in super::super) const ALLOC_FAILED: u64 = 3;
    pub(in super::super) const INVALID_VALUE: u64 = 7;
    pub(in super::super) const EXECUTION_FAILED: u64 = 13;
    pub(in super::super) const NOT_SUPPORTED: u64 = 15;
}
