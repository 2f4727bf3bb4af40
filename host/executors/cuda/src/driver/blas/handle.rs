//! Handles of cuBLAS, and the settings that each call needs.

use std::ffi::c_int;
use std::sync::Arc;

use vgpu_abi::CUresult;
use vgpu_abi::blas::{BlasStatus, POINTER_MODE_DEVICE, POINTER_MODE_HOST};

use super::functions::RawBlasHandle;
use super::library::{Blas, FunctionTable, LtTable};
use crate::driver::context::DriverContext;
use crate::driver::range::DeviceRange;
use crate::driver::stream::DriverStream;
use crate::driver::under_lock;

/// A call of cuBLAS that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{call} returned {} ({})", status.name().to_string_lossy(), status.0)]
pub(crate) struct BlasError {
    /// Name of the function.
    pub(crate) call: &'static str,
    /// Status that the function returned.
    pub(crate) status: BlasStatus,
}

impl BlasError {
    /// Returns the `CUresult` for the guest. None of them loses the context: if the context is lost, the
    /// driver reports that for the session's work.
    pub(crate) const fn code(&self) -> CUresult {
        match self.status {
            BlasStatus::ALLOC_FAILED => CUresult::OUT_OF_MEMORY,
            BlasStatus::INVALID_VALUE => CUresult::INVALID_VALUE,
            BlasStatus::NOT_SUPPORTED | BlasStatus::ARCH_MISMATCH => CUresult::NOT_SUPPORTED,
            _ => CUresult::UNKNOWN,
        }
    }
}

/// Turns the status of `call` into a result.
pub(super) fn check(call: &'static str, status: BlasStatus) -> Result<(), BlasError> {
    under_lock::note(call);
    match status {
        BlasStatus::SUCCESS => Ok(()),
        status => Err(BlasError { call, status }),
    }
}

/// Converts sizes or leading dimensions of `call` to the signed type of cuBLAS. Fails if one is too large.
pub(super) fn longs<const N: usize>(call: &'static str, sizes: [u64; N]) -> Result<[i64; N], BlasError> {
    if sizes.iter().any(|&size| i64::try_from(size).is_err()) {
        return Err(BlasError { call, status: BlasStatus::INVALID_VALUE });
    }
    Ok(sizes.map(u64::cast_signed))
}

/// Settings of a handle during one call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlasSettings {
    /// Math mode as a `cublasMath_t`.
    pub(crate) math: u32,
    /// Whether alpha and beta are in device memory.
    pub(crate) device_scalars: bool,
    /// Workspace for the call, aligned to 256 bytes. `None` selects the library's own.
    pub(crate) workspace: Option<DeviceRange>,
}

/// A handle of cuBLAS in a context. Any thread may use it, but only one at a time.
#[derive(Debug)]
pub(crate) struct BlasHandle {
    blas: Arc<Blas>,
    /// Context of the handle, which was current when the handle was made, and which lives as long.
    _context: Arc<DriverContext>,
    raw: RawBlasHandle,
}

impl BlasHandle {
    /// Creates a handle in `context`, which must be current in the calling thread. Waits for the device; the
    /// handle's device memory counts as overhead of the context.
    pub(crate) fn create(blas: &Arc<Blas>, context: &Arc<DriverContext>) -> Result<Self, BlasError> {
        let mut raw = 0;
        // SAFETY: the argument is a live variable for the handle.
        check("cublasCreate_v2", unsafe { (blas.table.cublasCreate_v2)(&raw mut raw) })?;
        Ok(Self { blas: Arc::clone(blas), _context: Arc::clone(context), raw })
    }

    pub(super) fn table(&self) -> &FunctionTable {
        &self.blas.table
    }

    pub(super) fn lt(&self) -> Option<&LtTable> {
        self.blas.lt.as_ref()
    }

    pub(super) const fn raw(&self) -> RawBlasHandle {
        self.raw
    }

    /// Prepares the handle for the next call, on `stream`. `cublasSetStream` resets the workspace, so the
    /// workspace is set after it.
    pub(crate) fn set(&mut self, stream: &DriverStream, settings: BlasSettings) -> Result<(), BlasError> {
        let table = &self.blas.table;
        // SAFETY: a live handle, and a live stream of the same context.
        let code = unsafe { (table.cublasSetStream_v2)(self.raw, stream.handle()) };
        check("cublasSetStream_v2", code)?;
        if let Some(workspace) = settings.workspace {
            let (address, bytes) = (workspace.address(), workspace.bytes() as usize);
            // SAFETY: a live handle; the range is the session's, and is not freed before the work is
            // complete.
            let code = unsafe { (table.cublasSetWorkspace_v2)(self.raw, address, bytes) };
            check("cublasSetWorkspace_v2", code)?;
        }
        let mode = if settings.device_scalars { POINTER_MODE_DEVICE } else { POINTER_MODE_HOST };
        // SAFETY: a live handle.
        let code = unsafe { (table.cublasSetPointerMode_v2)(self.raw, mode) };
        check("cublasSetPointerMode_v2", code)?;
        // SAFETY: a live handle.
        let code = unsafe { (table.cublasSetMathMode)(self.raw, settings.math as c_int) };
        check("cublasSetMathMode", code)
    }
}

impl Drop for BlasHandle {
    fn drop(&mut self) {
        // SAFETY: the last use of the handle; its context lives.
        let code = unsafe { (self.blas.table.cublasDestroy_v2)(self.raw) };
        // In a context that is lost nothing can be destroyed, which the session has logged.
        if let Err(error) = check("cublasDestroy_v2", code) {
            tracing::debug!("{error}");
        }
    }
}
