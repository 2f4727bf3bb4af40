//! The soft executor: a GPU made of a CPU. Device memory, copies, kernels from their PTX, graphs, matrix products.
//!
//! ```text
//!  message ─► session ─┬─► runner ─► copy, fill, launch, gemm, mappings    at once, on the ring's thread
//!             handles, └─► queue ──► runner                                 when the ring's order will not do
//!             modules        └ order: what has to come before what; adversary: which of the rest comes first
//! ```
//! Usually a session's work is done by the thread that reads its ring, in the order of the ring. So every order that
//! CUDA asks for holds - of a stream, of the default stream, of events and joins. Where the guest holds a stream, and where an
//! adversary is asked for ([`SoftOptions::adversary`]), work is queued, and what has no order may be done in any. Either way one
//! piece of work of a session is done at a time; a kernel is run by all threads of the device, which its sessions share.
//!
//! Device memory belongs to one session and is reached by no other. It occupies the host only where
//! it has been written.
//!
//! A module is loaded whole and its kernels one by one, when the guest first asks for each, as CUDA does by default: a kernel
//! with an instruction that the engine does not have is refused then (`INVALID_PTX`), by name and line in the log, and the others of its module
//! run. GGML's modules for compute capability 7.5 and later have such kernels beside those that a model needs;
//! to refuse the module would take these away, and to read all of a module's kernels takes seconds.
//!
//! What is refused with not-supported, and not promised by facts and attributes: cubins, managed memory, textures, clusters,
//! kernels that launch kernels.

#![forbid(unsafe_code)]

mod account;
mod adversary;
mod copy;
mod device;
mod function;
pub mod gemm;
mod graph;
mod image;
mod launch;
mod limits;
mod memory;
mod modules;
mod order;
mod questions;
mod queue;
mod runner;
mod session;
mod space;
mod status;
mod task;
mod virtual_memory;

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use vgpu_device::{Executor, ExecutorError, GpuConfig, GpuError, Session, SessionHost};
use vgpu_wire::facts::{DeviceFacts, exec};

use device::Device;
use session::SoftSession;

/// The usual product name.
pub const NAME: &str = "VGPU-STUB soft";

/// A GPU made of a CPU.
#[derive(Debug)]
pub struct Soft {
    facts: Box<DeviceFacts>,
    device: Arc<Device>,
}

/// How a soft device does its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SoftOptions {
    /// The most threads that run one kernel or product.
    pub threads: NonZeroUsize,
    /// How long a kernel, a product, a copy or a fill may take before it fails with `CUDA_ERROR_LAUNCH_TIMEOUT`; without one
    /// as long as its session lives, as on a GPU without a display.
    pub kernel_timeout: Option<Duration>,
    /// Seed of an order that no program expects, but CUDA allows; none: work is done in the order in which it comes.
    pub adversary: Option<u64>,
}

impl Default for SoftOptions {
    /// A thread for each CPU, no limit of time, no adversary.
    fn default() -> Self {
        Self {
            threads: std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
            kernel_timeout: None,
            adversary: None,
        }
    }
}

impl Soft {
    /// A GPU with these facts and the usual options.
    pub fn new(config: &GpuConfig) -> Result<Self, GpuError> {
        Self::with_options(config, SoftOptions::default())
    }

    /// A GPU with these facts.
    pub fn with_options(config: &GpuConfig, options: SoftOptions) -> Result<Self, GpuError> {
        vgpu_arena::keep_apart();
        let facts = Box::new(config.facts(exec::KERNELS | exec::PTX | exec::HOLDS)?);
        let device = Arc::new(Device::new(config, &facts, options));
        Ok(Self { facts, device })
    }

    /// A GPU that delays and reorders work as far as CUDA allows, the same for the same seed as far as the guest is: programs that rely
    /// on more find out.
    pub fn adversarial(config: &GpuConfig, seed: u64) -> Result<Self, GpuError> {
        Self::with_options(config, SoftOptions { adversary: Some(seed), ..SoftOptions::default() })
    }
}

impl Executor for Soft {
    fn name(&self) -> &'static str {
        "soft"
    }

    fn facts(&self) -> DeviceFacts {
        *self.facts
    }

    fn allocated(&self) -> u64 {
        self.device.account.used()
    }

    fn kept_image_bytes(&self) -> u64 {
        self.device.images.kept_bytes()
    }

    fn tidy(&self) {
        vgpu_arena::give_back();
    }

    fn open(&self, host: SessionHost) -> Result<Box<dyn Session>, ExecutorError> {
        Ok(Box::new(SoftSession::new(host, Arc::clone(&self.device))))
    }
}
