//! How a soft device does its work.

use std::num::NonZeroUsize;
use std::time::Duration;

/// Threads and limits of a soft device's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SoftOptions {
    /// Largest number of threads that run one kernel or product.
    pub threads: NonZeroUsize,
    /// How long a kernel, a product, a copy or a fill may take before it fails with
    /// `CUDA_ERROR_LAUNCH_TIMEOUT`. Without a limit it may take as long as its session lives, as on a GPU
    /// without a display.
    pub kernel_timeout: Option<Duration>,
}

impl Default for SoftOptions {
    /// A thread for each CPU, and no time limit.
    fn default() -> Self {
        Self {
            threads: std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
            kernel_timeout: None,
        }
    }
}
