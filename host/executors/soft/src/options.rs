//! Options of a soft device.

use std::num::NonZeroUsize;
use std::time::Duration;

use vgpu_simt::Features;

/// The threads, the time limit and the instruction set of a soft device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SoftOptions {
    /// Largest number of threads that run one kernel or product.
    pub threads: NonZeroUsize,
    /// Time after which a kernel, a product, a copy or a fill fails with `CUDA_ERROR_LAUNCH_TIMEOUT`. Without
    /// a limit it may run as long as its session lives, as on a GPU without a display.
    pub kernel_timeout: Option<Duration>,
    /// The instruction set for which kernels are lowered. Results are the same bits with each of them.
    pub features: Features,
}

impl Default for SoftOptions {
    /// Returns one thread per CPU, no time limit, and the best features of this CPU.
    fn default() -> Self {
        Self {
            threads: std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
            kernel_timeout: None,
            features: Features::best(),
        }
    }
}
