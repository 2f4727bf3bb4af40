//! Errors of loading the driver, and of its calls.

use std::path::PathBuf;

use vgpu_abi::CUresult;

use super::sticky::loses_context;
use super::under_lock;

/// Reason for which there is no GPU to execute on.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The library is missing or cannot be loaded.
    #[error("load the NVIDIA driver: {reason}; install it on this host")]
    Library {
        /// Path of the library, or the name that the loader looks up.
        path: PathBuf,
        /// Message of the loader, which starts with the library.
        reason: String,
    },
    /// The library lacks a function.
    #[error("{path} has no {symbol}: the driver is too old; version 520 (CUDA 11.8) or later is needed")]
    TooOld {
        /// Path of the library.
        path: PathBuf,
        /// Name of the missing function.
        symbol: &'static str,
    },
    /// A call failed that every driver must support.
    #[error(transparent)]
    Call(#[from] DriverError),
    /// No device has the UUID.
    #[error("no GPU of this host has UUID {wanted}; it has {found}")]
    NoDevice {
        /// UUID that was requested, or "any".
        wanted: String,
        /// UUIDs of the host's GPUs.
        found: String,
    },
    /// The GPU lacks something that the executor needs.
    #[error("GPU {uuid} cannot be used: {lacks}")]
    Lacks {
        /// UUID of the GPU.
        uuid: String,
        /// Property that the GPU lacks, as the end of a sentence.
        lacks: &'static str,
    },
    /// The GPU has less memory than the contexts of its guests take.
    #[error("{total} bytes of GPU memory leave nothing beside {overhead} bytes for {workers} contexts")]
    Memory {
        /// Size of the GPU's memory in bytes.
        total: u64,
        /// Number of bytes that the contexts take.
        overhead: u64,
        /// Number of contexts that the guests may have at once.
        workers: u32,
    },
}

/// A call of the driver that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{call} returned {code}")]
pub struct DriverError {
    /// Name of the function.
    pub call: &'static str,
    /// Status that the function returned.
    pub code: CUresult,
}

impl DriverError {
    /// Returns whether the error loses the context ([`super::sticky`]).
    #[must_use]
    pub(crate) fn loses_context(&self) -> bool {
        loses_context(self.code)
    }
}

/// Turns the status of `call` into a result. Every call of the driver passes here.
pub(super) fn check(call: &'static str, code: CUresult) -> Result<(), DriverError> {
    under_lock::note(call);
    match code {
        CUresult::SUCCESS => Ok(()),
        code => Err(DriverError { call, code }),
    }
}

/// Turns the status of a query into whether the work is complete.
pub(super) fn check_ready(call: &'static str, code: CUresult) -> Result<bool, DriverError> {
    match check(call, code) {
        Err(DriverError { code: CUresult::NOT_READY, .. }) => Ok(false),
        done => done.map(|()| true),
    }
}

/// Logs a failure in a destructor, which cannot report it otherwise. A lost context refuses all such calls,
/// so that is not logged again.
pub(super) fn log_failure(done: Result<(), DriverError>) {
    if let Err(error) = done
        && !error.loses_context()
    {
        tracing::warn!("{error}");
    }
}
