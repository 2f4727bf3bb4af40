//! Measures the GPU memory that a context costs, including the memory of cuBLAS in it: one process queries
//! the free memory before and after another process makes a context.

use std::path::Path;
use std::sync::Arc;

use crate::LoadError;
use crate::driver::blas::handle::BlasHandle;
use crate::driver::blas::library::{Blas, BlasFiles};
use crate::driver::context::DriverContext;
use crate::driver::device::DriverDevice;
use crate::driver::error::DriverError;
use crate::driver::library::DriverLibrary;
use crate::driver::range::{self, PhysicalMemory};
use crate::options::CudaOptions;

/// Identity of a GPU, and the size of its memory.
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
        Ok(Self::of(&DriverDevice::find(&driver, options.uuid)?)?)
    }

    /// Returns all GPUs that the driver shows, in its order. Makes no context.
    ///
    /// # Errors
    /// The driver cannot be loaded, or refuses a query.
    pub fn all(libcuda: Option<&Path>) -> Result<Vec<Self>, LoadError> {
        let devices = DriverDevice::all(&DriverLibrary::load(libcuda)?)?;
        Ok(devices.iter().map(Self::of).collect::<Result<_, _>>()?)
    }

    fn of(device: &DriverDevice) -> Result<Self, DriverError> {
        Ok(Self { uuid: device.uuid()?, total_bytes: device.total_bytes()? })
    }
}

/// Reason why there is no cuBLAS handle in the context that is measured.
#[derive(Clone, Debug, thiserror::Error)]
pub enum HandleError {
    /// The driver does not tell its version, which cuBLAS has to fit.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// cuBLAS made no handle, for example because there is no memory for one. The text names the call that
    /// failed.
    #[error("{0}")]
    Refused(String),
}

/// A CUDA context whose memory is measured, or in which the free memory is queried.
#[derive(Debug)]
pub struct ContextProbe {
    /// Handle of cuBLAS, which is destroyed before its context.
    _products: Option<BlasHandle>,
    context: Arc<DriverContext>,
}

impl ContextProbe {
    /// Makes a context, which becomes current in the calling thread, and allocates and frees a granule of
    /// memory in it: a driver may defer the cost of a context until the first call that needs it.
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
        Ok(Self { _products: None, context })
    }

    /// Makes a handle of cuBLAS in the context too, as a session with matrix products does. Does nothing if
    /// cuBLAS cannot be loaded, because then no session has a handle.
    ///
    /// # Errors
    /// cuBLAS is loaded and makes no handle, or the driver does not tell its version. The context remains.
    pub fn add_products(&mut self, options: &CudaOptions) -> Result<(), HandleError> {
        let version = self.context.device().driver_version()?;
        let files = BlasFiles::find(options.libcublas.as_deref(), version, &options.root);
        let Some(blas) = files.and_then(|files| Blas::load(&files)).ok() else { return Ok(()) };
        let handle = BlasHandle::create(&blas, &self.context);
        let handle = handle.map_err(|error| HandleError::Refused(error.to_string()))?;
        *self = Self { _products: Some(handle), context: Arc::clone(&self.context) };
        Ok(())
    }

    /// Returns the number of bytes of the GPU's memory that no process has, or `None` if the driver cannot
    /// tell.
    ///
    /// # Errors
    /// The driver refuses the query.
    pub fn free_bytes(&self) -> Result<Option<u64>, DriverError> {
        self.context.free_bytes()
    }
}
