//! The soft executor: a GPU made of a CPU. Device memory, copies, kernels from their PTX, graphs, matrix
//! products.
//!
//! ```text
//!  message ─► session ──┬──► runner ─► copy, fill, launch, gemm, mappings   at once, on the ring's thread
//!             questions │       ▲         └► memory: arena, allocations
//!             graph     └──► queue                                          where the ring's order will not do
//!                              └ order: what must come before what; adversary: which of the rest comes first
//! ```
//! From the top: a `session` turns messages into `task`s; the `queue` keeps those that must wait; the
//! `runner` carries them out on the session's `memory`. Each knows those below it alone.
//!
//! Usually the thread that reads a session's ring does its work, in the order of the ring. So every order
//! that CUDA asks for holds: of a stream, of the default stream, of events and joins. Where the guest holds a
//! stream, and where an adversary is asked for ([`TestHooks::adversary`]), work is queued, and work without
//! an order may be done in any. Either way a session does one piece of work at a time. A kernel runs on all
//! threads of the device, which its sessions share.
//!
//! Device memory belongs to one session, and no other session reaches it. It occupies the host only where it
//! has been written.
//!
//! What a session's work was is counted by kernel and by kind ([`Executor::profile`]). Kernels that were made ready
//! are kept for sessions to come, which then start sooner.
//!
//! A module is loaded whole, and its kernels are made ready one by one when the guest first asks for each, as
//! CUDA does by default. A kernel with an instruction that the engine does not have is refused then
//! (`INVALID_PTX`), by name and line in the log, and the others of its module run. GGML's modules for compute
//! capability 7.5 and later have such kernels beside those that a model needs: to refuse the module would
//! take these away, and to read all kernels of a module takes seconds.
//!
//! What is refused with not-supported, and not promised by facts and attributes: cubins, managed memory,
//! textures, clusters, and kernels that launch kernels.

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

use device::Device;
use session::SoftSession;

pub use hooks::TestHooks;
pub use options::SoftOptions;
pub use vgpu_simt::Features;

/// The usual product name.
pub const NAME: &str = "VGPU-STUB soft";

/// What it can do besides what every executor can.
const ABILITIES: u32 =
    exec::KERNELS | exec::PTX | exec::HOLDS | exec::EPILOGUES | exec::VECTORS | exec::LINKS;

/// A GPU made of a CPU.
#[derive(Debug)]
pub struct Soft {
    facts: Box<DeviceFacts>,
    device: Arc<Device>,
}

impl Soft {
    /// A GPU with these facts and the default options.
    pub fn new(config: &GpuConfig) -> Result<Self, GpuError> {
        Self::with_options(config, SoftOptions::default())
    }

    /// A GPU with these facts.
    pub fn with_options(config: &GpuConfig, options: SoftOptions) -> Result<Self, GpuError> {
        Self::with_hooks(config, options, TestHooks::default())
    }

    /// A GPU with these facts, for tests of programs.
    pub fn with_hooks(config: &GpuConfig, options: SoftOptions, hooks: TestHooks) -> Result<Self, GpuError> {
        vgpu_arena::keep_apart();
        let facts = Box::new(config.facts(ABILITIES)?);
        let device = Arc::new(Device::new(config, &facts, options, hooks));
        Ok(Self { facts, device })
    }

    /// The addresses at which `cuMemAddressReserve` gives a program of such a GPU the range that it wishes
    /// for.
    #[must_use]
    pub fn reservable(config: &GpuConfig) -> std::ops::Range<u64> {
        memory::reservable(config.addresses.range().base)
    }

    /// A GPU that delays and reorders work as far as CUDA allows, so that programs that rely on more fail.
    /// The same seed gives the same order, as far as the guest sends the same messages.
    pub fn adversarial(config: &GpuConfig, seed: u64) -> Result<Self, GpuError> {
        Self::with_hooks(config, SoftOptions::default(), TestHooks { adversary: Some(seed) })
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
