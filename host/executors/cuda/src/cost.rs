//! What a context costs of the GPU's memory. It is measured by the free memory that one process sees before
//! and after another one makes a context.

use std::sync::Arc;

use crate::LoadError;
use crate::driver::context::DriverContext;
use crate::driver::device::DriverDevice;
use crate::driver::error::DriverError;
use crate::driver::library::DriverLibrary;
use crate::driver::range::{self, PhysicalMemory};
use crate::options::CudaOptions;

/// What identifies a GPU, and the size of its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuIdentity {
    /// UUID of the GPU, or of the part of one.
    pub uuid: [u8; 16],
    /// Size of its memory in bytes.
    pub total_bytes: u64,
}

impl GpuIdentity {
    /// Finds the GPU that the options name. Makes no context.
    ///
    /// # Errors
    /// The driver cannot be loaded, does not have the GPU, or refuses a query.
    pub fn find(options: &CudaOptions) -> Result<Self, LoadError> {
        let driver = DriverLibrary::load(options.libcuda.as_deref())?;
        let device = DriverDevice::find(&driver, options.uuid)?;
        Ok(Self { uuid: device.uuid()?, total_bytes: device.total_bytes()? })
    }
}

/// A context that is only there to be measured, or to see the free memory.
#[derive(Debug)]
pub struct ContextProbe(Arc<DriverContext>);

impl ContextProbe {
    /// Makes a context, which becomes current in the calling thread, and has it take a granule of memory for
    /// a moment: a driver may put off what a context costs until the first call that needs it.
    ///
    /// # Errors
    /// The driver cannot be loaded, or gives no context.
    pub fn create(options: &CudaOptions) -> Result<Self, LoadError> {
        let driver = DriverLibrary::load(options.libcuda.as_deref())?;
        let device = DriverDevice::find(&driver, options.uuid)?;
        let context = DriverContext::create(&device)?;
        drop(PhysicalMemory::create(&context, range::granularity(&device)?)?);
        // A driver may free it later. Its answer to a query counts what was freed before.
        context.free_bytes()?;
        Ok(Self(context))
    }

    /// Returns the number of bytes of the GPU's memory that no process has, or `None` if the driver cannot
    /// tell.
    ///
    /// # Errors
    /// The driver refuses the query.
    pub fn free_bytes(&self) -> Result<Option<u64>, DriverError> {
        self.0.free_bytes()
    }
}
