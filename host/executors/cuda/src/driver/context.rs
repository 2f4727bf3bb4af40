//! Contexts: each session has one of its own.

use std::sync::Arc;

use vgpu_abi::driver::CUcontext;

use super::device::Device;
use super::error::{DriverError, check, tell};
use super::library::Table;

/// A context, destroyed with the last thing in it.
#[derive(Debug)]
pub(crate) struct Context {
    device: Device,
    handle: CUcontext,
}

impl Context {
    /// `cuCtxCreate`: the new context is the calling thread's current one.
    pub(crate) fn create(device: &Device) -> Result<Arc<Self>, DriverError> {
        let mut handle = CUcontext::NULL;
        let create = device.driver().table.cuCtxCreate_v2;
        // SAFETY: a live place for the answer. No flags: how waits are done does not matter to who never
        // waits.
        check("cuCtxCreate_v2", unsafe { create(&raw mut handle, 0, device.ordinal()) })?;
        Ok(Arc::new(Self { device: device.clone(), handle }))
    }

    /// The device.
    pub(crate) const fn device(&self) -> &Device {
        &self.device
    }

    pub(super) fn table(&self) -> &Table {
        &self.device.driver().table
    }

    /// Makes the context the calling thread's current one.
    pub(crate) fn enter(&self) -> Result<(), DriverError> {
        // SAFETY: the context lives as long as `self`.
        check("cuCtxSetCurrent", unsafe { (self.table().cuCtxSetCurrent)(self.handle) })
    }

    /// Leaves the calling thread without a context: before it ends, for a context is destroyed when no other
    /// thread has it.
    pub(crate) fn leave(&self) {
        // SAFETY: takes no pointers; null is no context.
        tell(check("cuCtxSetCurrent", unsafe { (self.table().cuCtxSetCurrent)(CUcontext::NULL) }));
    }

    /// Waits for all work: only at the end of a session.
    pub(crate) fn synchronize(&self) -> Result<(), DriverError> {
        // SAFETY: takes no pointers.
        check("cuCtxSynchronize", unsafe { (self.table().cuCtxSynchronize)() })
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: nothing of the context is in use: all that is has a share of this value.
        tell(check("cuCtxDestroy_v2", unsafe { (self.table().cuCtxDestroy_v2)(self.handle) }));
    }
}
