//! The `CUresult` values that the executor returns, by their names without `CUDA_ERROR_`.

pub(crate) const SUCCESS: u32 = 0;
pub(crate) const INVALID_VALUE: u32 = 1;
pub(crate) const OUT_OF_MEMORY: u32 = 2;
pub(crate) const INVALID_IMAGE: u32 = 200;
pub(crate) const NO_BINARY_FOR_GPU: u32 = 209;
pub(crate) const INVALID_PTX: u32 = 218;
pub(crate) const UNSUPPORTED_PTX_VERSION: u32 = 222;
pub(crate) const NOT_FOUND: u32 = 500;
pub(crate) const ILLEGAL_ADDRESS: u32 = 700;
pub(crate) const LAUNCH_OUT_OF_RESOURCES: u32 = 701;
pub(crate) const LAUNCH_TIMEOUT: u32 = 702;
pub(crate) const COOPERATIVE_LAUNCH_TOO_LARGE: u32 = 720;
pub(crate) const NOT_SUPPORTED: u32 = 801;
pub(crate) const INVALID_CLUSTER_SIZE: u32 = 912;
pub(crate) const UNKNOWN: u32 = 999;
