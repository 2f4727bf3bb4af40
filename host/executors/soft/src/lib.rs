//! The soft executor emulates a GPU on the CPU: device memory, copies, kernels from their PTX, graphs, matrix
//! products.
//!
//! ```text
//!  message ─► session ──┬──► runner ─► copy, fill, launch, gemm, mappings   at once, on the ring's thread
//!             questions │       ▲         └► memory: arena, allocations
//!             graph     └──► queue                                          tasks that must wait for others
//!                              └ order: which task precedes which; adversary: which ready task is next
//! ```
//! A `session` turns messages into `task`s. The `queue` keeps those that must wait. The `runner` carries them
//! out on the session's `memory`. Each module uses only those that are drawn below it.
//!
//! The thread that reads a session's ring usually carries out its work, in the order of the ring. This
//! satisfies every order that CUDA requires: of streams, the default stream, events and joins. If the guest
//! holds a stream, or an adversary is configured ([`TestHooks::adversary`]), work is queued, and independent
//! work may run in any order. In either case a session carries out one task at a time. A kernel runs on all
//! threads of the device, which its sessions share.
//!
//! Device memory belongs to one session, and no other session can access it. Pages occupy host memory once
//! they are written.
//!
//! The work of a session is counted by kernel and by kind ([`Executor::profile`]). Prepared kernels are
//! cached for later sessions, which start faster.
//!
//! Loading a module does not prepare its kernels: each is prepared when the guest first requests it, as CUDA
//! does by default. A kernel with an instruction that the engine lacks is refused then (`INVALID_PTX`), with
//! its name and line in the log, and the other kernels of its module run. GGML's modules for compute
//! capability 7.5 and later contain such kernels beside those that a model needs. Preparing all kernels of a
//! module would take seconds.
//!
//! The executor does not support cubins, managed memory, textures, clusters of several blocks, and kernels
//! that launch kernels. Facts and attributes do not announce them.

#![forbid(unsafe_code)]

mod device;
mod function;
pub mod gemm;
mod graph;
mod heap;
mod hooks;
mod image;
mod limits;
mod links;
mod memory;
mod modules;
mod options;
mod profile;
mod programs;
mod queue;
mod runner;
mod session;
#[cfg(test)]
mod shares;
mod status;
mod task;

use std::sync::Arc;

use vgpu_device::{Executor, ExecutorError, GpuConfig, GpuError, Profile, Session, SessionHost};
use vgpu_wire::facts::{DeviceFacts, exec};

use device::SoftDevice;
use session::SoftSession;

pub use hooks::TestHooks;
pub use options::SoftOptions;
pub use vgpu_simt::Features;

/// Product name that devices with this executor usually have.
pub const NAME: &str = "VGPU-STUB soft";

/// Optional features that the executor announces. It orders all dependencies of a graph fully.
const ABILITIES: u32 =
    exec::KERNELS | exec::PTX | exec::HOLDS | exec::EPILOGUES | exec::VECTORS | exec::LINKS | exec::EDGES;

/// A GPU that is emulated on the CPU.
#[derive(Debug)]
pub struct Soft {
    facts: Box<DeviceFacts>,
    device: Arc<SoftDevice>,
}

impl Soft {
    /// Makes a GPU with these facts and the default options.
    pub fn new(config: &GpuConfig) -> Result<Self, GpuError> {
        Self::with_options(config, SoftOptions::default())
    }

    /// Makes a GPU with these facts and options.
    pub fn with_options(config: &GpuConfig, options: SoftOptions) -> Result<Self, GpuError> {
        Self::with_hooks(config, options, TestHooks::default())
    }

    /// Makes a GPU with these facts and options, and with hooks for tests of programs.
    pub fn with_hooks(config: &GpuConfig, options: SoftOptions, hooks: TestHooks) -> Result<Self, GpuError> {
        vgpu_arena::keep_apart();
        let facts = Box::new(config.facts(ABILITIES)?);
        let device = Arc::new(SoftDevice::new(config, &facts, options, hooks));
        Ok(Self { facts, device })
    }

    /// Returns the range in which `cuMemAddressReserve` returns the address that a program requests.
    #[must_use]
    pub fn reservable(config: &GpuConfig) -> std::ops::Range<u64> {
        memory::reservable(config.addresses.range().base)
    }

    /// Makes a GPU that delays and reorders work as far as CUDA permits, so that programs that rely on more
    /// fail. The same seed and the same messages give the same order.
    pub fn adversarial(config: &GpuConfig, seed: u64) -> Result<Self, GpuError> {
        Self::with_hooks(
            config,
            SoftOptions::default(),
            TestHooks { adversary: Some(seed), ..TestHooks::default() },
        )
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

    fn memory_unit(&self) -> u64 {
        vgpu_arena::PAGE
    }

    fn kept_image_bytes(&self) -> u64 {
        self.device.images.kept_bytes() + self.device.programs.kept_bytes()
    }

    fn profile(&self, session: u32) -> Option<Profile> {
        self.device.recorders.read(session)
    }

    fn tidy(&self) {
        vgpu_arena::give_back();
    }

    fn open(&self, host: SessionHost) -> Result<Box<dyn Session>, ExecutorError> {
        Ok(Box::new(SoftSession::new(host, Arc::clone(&self.device))))
    }
}
