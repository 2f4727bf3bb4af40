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
        // SAFETY: a live place for the answer. No flags: how waits are done does not matter to who never
        // waits.
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
        // SAFETY: takes no pointers; null is no context.
        log_failure(check("cuCtxSetCurrent", unsafe { (self.table().cuCtxSetCurrent)(CUcontext::NULL) }));
    }

    /// Waits for all work of the context. Used only at the end of a session.
    pub(crate) fn synchronize(&self) -> Result<(), DriverError> {
        // SAFETY: takes no pointers.
        check("cuCtxSynchronize", unsafe { (self.table().cuCtxSynchronize)() })
    }
}

impl Drop for DriverContext {
    fn drop(&mut self) {
        // SAFETY: nothing of the context is in use: all that is has a share of this value.
        log_failure(check("cuCtxDestroy_v2", unsafe { (self.table().cuCtxDestroy_v2)(self.handle) }));
    }
}
