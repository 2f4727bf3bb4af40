//! How a soft device does its work.

use std::num::NonZeroUsize;
use std::time::Duration;

use vgpu_simt::Features;

/// Threads, limits and features of a soft device's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SoftOptions {
    /// Largest number of threads that run one kernel or product.
    pub threads: NonZeroUsize,
    /// How long a kernel, a product, a copy or a fill may take before it fails with
    /// `CUDA_ERROR_LAUNCH_TIMEOUT`. Without a limit it may take as long as its session lives, as on a GPU
    /// without a display.
    pub kernel_timeout: Option<Duration>,
    /// What kernels are lowered for. Kernels compute the same bits with all of them.
    pub features: Features,
}

impl Default for SoftOptions {
    /// A thread for each CPU, no time limit, and the best features of this CPU.
    fn default() -> Self {
        Self {
            threads: std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
            kernel_timeout: None,
            features: Features::best(),
        }
    }
}
