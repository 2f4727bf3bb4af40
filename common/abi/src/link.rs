//! Access of the other shims to libcuda: its private table, and a context for the calling thread.

use core::ffi::c_int;
use std::sync::OnceLock;

pub use crate::calls::{Calls, LINKED};
use crate::driver::CUcontext;
use crate::table::Table;
use crate::{CUresult, log};

/// A shim's connection to libcuda.
#[derive(Debug)]
pub struct Link {
    name: &'static str,
    calls: Calls,
    table: OnceLock<Option<&'static Table>>,
}

impl Link {
    /// Creates the connection of the library that the log calls `name`.
    #[must_use]
    pub const fn new(name: &'static str, calls: Calls) -> Self {
        Self { name, calls, table: OnceLock::new() }
    }

    /// Returns the name of the library.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Returns libcuda's table, or `None` if there is none; then the log says why, once.
    pub fn table(&self) -> Option<&'static Table> {
        *self.table.get_or_init(|| {
            // SAFETY: `Calls` promises that it is that function, of a libcuda that stays loaded.
            let table = unsafe { Table::ask(self.calls.get_export_table) };
            if table.is_none() {
                let name = self.name;
                log::error(format_args!("{name}: libcuda.so.1 is not that of vgpu-run, or of another build"));
            }
            table
        })
    }

    /// Returns the newest CUDA version that the driver supports, in CUDA's own encoding.
    ///
    /// # Errors
    /// Returns the error of `cuDriverGetVersion`.
    pub fn cuda_version(&self) -> Result<c_int, CUresult> {
        let mut version = 0;
        // SAFETY: called with a place for the answer.
        unsafe { (self.calls.driver_get_version)(&raw mut version) }.ok()?;
        Ok(version)
    }

    /// Initialises libcuda and gives the thread a context if it has none: the primary one of the first
    /// device, as the runtime API does.
    ///
    /// # Errors
    /// Returns not initialised without a table, otherwise the error of the call that failed.
    pub fn enter(&self) -> Result<(), CUresult> {
        self.table().ok_or(CUresult::NOT_INITIALIZED)?;
        // SAFETY: takes no pointers.
        unsafe { (self.calls.init)(0) }.ok()?;
        let mut context = CUcontext::NULL;
        // SAFETY: called with a place for the answer.
        unsafe { (self.calls.ctx_get_current)(&raw mut context) }.ok()?;
        if context != CUcontext::NULL {
            return Ok(());
        }
        let mut device = 0;
        // SAFETY: called with a place for the answer.
        unsafe { (self.calls.device_get)(&raw mut device, 0) }.ok()?;
        // SAFETY: called with a place for the answer.
        unsafe { (self.calls.device_primary_ctx_retain)(&raw mut context, device) }.ok()?;
        // SAFETY: takes no pointers; libcuda checks its handles.
        unsafe { (self.calls.ctx_set_current)(context) }.ok()
    }
}
