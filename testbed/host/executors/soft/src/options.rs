//! How a soft device does its work.

use std::num::NonZeroUsize;
use std::time::Duration;

use vgpu_simt::Features;

/// What runs kernels. Both compute the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// Machine code that is made for each kernel, with the interpreter for what has no translation.
    Jit,
    /// The interpreter alone.
    Interpreter,
}

impl Engine {
    /// The fastest engine that this CPU can run.
    #[must_use]
    pub fn best() -> Self {
        if Self::Jit.is_available() { Self::Jit } else { Self::Interpreter }
    }

    /// Whether this CPU can run the engine: machine code needs AVX2.
    #[must_use]
    pub fn is_available(self) -> bool {
        self == Self::Interpreter || Features::best().translates()
    }

    /// The instruction set for which programs are lowered. Where machine code cannot be made, that of the
    /// interpreter.
    pub(crate) fn features(self) -> Features {
        match self {
            Self::Jit => Features::best(),
            Self::Interpreter => Features::interpreted(),
        }
    }
}

/// Threads, limits and engine of a soft device's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SoftOptions {
    /// Largest number of threads that run one kernel or product.
    pub threads: NonZeroUsize,
    /// How long a kernel, a product, a copy or a fill may take before it fails with
    /// `CUDA_ERROR_LAUNCH_TIMEOUT`. Without a limit it may take as long as its session lives, as on a GPU
    /// without a display.
    pub kernel_timeout: Option<Duration>,
    /// What runs kernels.
    pub engine: Engine,
}

impl Default for SoftOptions {
    /// A thread for each CPU, no time limit, and the fastest engine.
    fn default() -> Self {
        Self {
            threads: std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
            kernel_timeout: None,
            engine: Engine::best(),
        }
    }
}
