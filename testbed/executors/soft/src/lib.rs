//! The soft executor: device memory, copies and fills, carried out on the CPU.
//!
//! A session's work is done by the thread that hands it over, in the order of the ring. So every order that
//! CUDA asks for holds - of a stream, of the default stream, of events and joins - and no two streams
//! overlap. Modules and kernels are refused with not-supported; so are virtual memory management,
//! managed memory, graphs and matrix products, and [`DeviceFacts::abilities`] and the attributes say so.
//!
//! Device memory belongs to one session and is reached by no other. It occupies the host only where
//! it has been written.

#![forbid(unsafe_code)]

mod copy;
mod memory;
mod session;
mod space;

use std::sync::Arc;

use vgpu_device::{Executor, ExecutorError, GpuConfig, GpuError, Session, SessionHost};
use vgpu_wire::facts::DeviceFacts;

use memory::DeviceMemory;
use session::SoftSession;

/// The usual product name.
pub const NAME: &str = "VGPU-STUB soft";

/// A GPU made of a CPU.
#[derive(Debug)]
pub struct Soft {
    facts: Box<DeviceFacts>,
    memory: Arc<DeviceMemory>,
}

impl Soft {
    /// A GPU with these facts.
    pub fn new(config: &GpuConfig) -> Result<Self, GpuError> {
        let facts = Box::new(config.facts(0)?);
        let memory = Arc::new(DeviceMemory::new(config.memory_bytes, config.address_base));
        Ok(Self { facts, memory })
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
        self.memory.used()
    }

    fn open(&self, host: SessionHost) -> Result<Box<dyn Session>, ExecutorError> {
        Ok(Box::new(SoftSession::new(host, Arc::clone(&self.memory))))
    }
}
