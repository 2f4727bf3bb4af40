//! Contexts of the driver. Each session has its own.

use std::sync::Arc;

use vgpu_abi::driver::CUcontext;

use super::device::DriverDevice;
use super::error::{DriverError, check, log_failure};
use super::library::FunctionTable;

/// A context, destroyed when nothing refers to it any more.
#[derive(Debug)]
pub(crate) struct DriverContext {
    device: DriverDevice,
    handle: CUcontext,
}

impl DriverContext {
    /// Creates a context. It becomes the current one of the calling thread.
    pub(crate) fn create(device: &DriverDevice) -> Result<Arc<Self>, DriverError> {
        let mut handle = CUcontext::NULL;
        let create = device.driver().table.cuCtxCreate_v2;
        // SAFETY: the argument is a live variable for the context. The flags select how waits are done, which
        // does not matter here, because nothing waits.
        check("cuCtxCreate_v2", unsafe { create(&raw mut handle, 0, device.ordinal()) })?;
        Ok(Arc::new(Self { device: device.clone(), handle }))
    }

    /// Returns the device of the context.
    pub(crate) const fn device(&self) -> &DriverDevice {
        &self.device
    }

    pub(super) fn table(&self) -> &FunctionTable {
        &self.device.driver().table
    }

    /// Makes the context current in the calling thread.
    pub(crate) fn enter(&self) -> Result<(), DriverError> {
        // SAFETY: the context lives as long as `self`.
        check("cuCtxSetCurrent", unsafe { (self.table().cuCtxSetCurrent)(self.handle) })
    }

    /// Leaves the calling thread without a current context. A thread calls this before it ends, because a
    /// context can be destroyed only when no other thread has it.
    pub(crate) fn leave(&self) {
        // SAFETY: takes no pointers; a null handle means no context.
        log_failure(check("cuCtxSetCurrent", unsafe { (self.table().cuCtxSetCurrent)(CUcontext::NULL) }));
    }

    /// Returns the number of free bytes of the GPU's memory, if the driver can tell. The context must be
    /// current.
    pub(crate) fn free_bytes(&self) -> Result<Option<u64>, DriverError> {
        let Some(info) = self.table().cuMemGetInfo_v2 else { return Ok(None) };
        let (mut free, mut total) = (0, 0);
        // SAFETY: both arguments are live variables for the answer.
        check("cuMemGetInfo_v2", unsafe { info(&raw mut free, &raw mut total) })?;
        Ok(Some(free as u64))
    }

    /// Waits for all work of the context. It is called only at the end of a session.
    pub(crate) fn synchronize(&self) -> Result<(), DriverError> {
        // SAFETY: takes no pointers.
        check("cuCtxSynchronize", unsafe { (self.table().cuCtxSynchronize)() })
    }
}

impl Drop for DriverContext {
    fn drop(&mut self) {
        // SAFETY: no object of the context is in use, because every object keeps this value alive.
        log_failure(check("cuCtxDestroy_v2", unsafe { (self.table().cuCtxDestroy_v2)(self.handle) }));
    }
}
