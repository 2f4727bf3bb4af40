//! Handles of cuBLAS, and what is set on them before each call.

use std::ffi::c_int;
use std::sync::Arc;

use vgpu_abi::CUresult;
use vgpu_abi::blas::{BlasStatus, POINTER_MODE_DEVICE, POINTER_MODE_HOST};

use super::functions::BlasHandle;
use super::library::{Blas, LtTable, Table};
use crate::driver::context::Context;
use crate::driver::range::DeviceRange;
use crate::driver::stream::Stream;

/// A call of cuBLAS that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{call} returned {} ({})", status.name().to_string_lossy(), status.0)]
pub(crate) struct BlasError {
    /// The function.
    pub(crate) call: &'static str,
    /// What it returned.
    pub(crate) status: BlasStatus,
}

impl BlasError {
    /// The `CUresult` for the guest. None of them says that the context is lost: if it is, the driver says so
    /// itself of the session's work.
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
pub(super) const fn check(call: &'static str, status: BlasStatus) -> Result<(), BlasError> {
    match status {
        BlasStatus::SUCCESS => Ok(()),
        status => Err(BlasError { call, status }),
    }
}

/// Sizes or leading dimensions as cuBLAS takes them. `call` is the one that gets them.
pub(super) fn longs<const N: usize>(call: &'static str, sizes: [u64; N]) -> Result<[i64; N], BlasError> {
    if sizes.iter().any(|&size| i64::try_from(size).is_err()) {
        return Err(BlasError { call, status: BlasStatus::INVALID_VALUE });
    }
    Ok(sizes.map(u64::cast_signed))
}

/// What a call is to find set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// `cublasMath_t`
    pub(crate) math: u32,
    /// Alpha and beta are in device memory.
    pub(crate) device_scalars: bool,
    /// Memory to work in, at a multiple of 256. `None`: the library's own.
    pub(crate) workspace: Option<DeviceRange>,
}

/// A handle of a context. It is of no thread, but only one may use it at a time.
#[derive(Debug)]
pub(crate) struct Handle {
    blas: Arc<Blas>,
    /// The context was current when the handle was made, and outlives it.
    _context: Arc<Context>,
    raw: BlasHandle,
}

impl Handle {
    /// `cublasCreate`, in the calling thread's current context, which `context` is. Waits for the device, and
    /// takes memory of it that is the context's overhead.
    pub(crate) fn create(blas: &Arc<Blas>, context: &Arc<Context>) -> Result<Self, BlasError> {
        let mut raw = 0;
        // SAFETY: a live place for the answer.
        check("cublasCreate_v2", unsafe { (blas.table.cublasCreate_v2)(&raw mut raw) })?;
        Ok(Self { blas: Arc::clone(blas), _context: Arc::clone(context), raw })
    }

    pub(super) fn table(&self) -> &Table {
        &self.blas.table
    }

    pub(super) fn lt(&self) -> Option<&LtTable> {
        self.blas.lt.as_ref()
    }

    pub(super) const fn raw(&self) -> BlasHandle {
        self.raw
    }

    /// Prepares the next call, which goes to `stream`. A stream that is set takes the workspace away, so that
    /// the workspace is set behind it.
    pub(crate) fn set(&mut self, stream: &Stream, settings: Settings) -> Result<(), BlasError> {
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

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: the last use of the handle; its context lives.
        let code = unsafe { (self.blas.table.cublasDestroy_v2)(self.raw) };
        // In a context that is lost nothing can be destroyed, which the session has logged.
        if let Err(error) = check("cublasDestroy_v2", code) {
            tracing::debug!("{error}");
        }
    }
}
