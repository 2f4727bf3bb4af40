//! Why the driver cannot be used, and what its calls answer when they fail.

use std::path::PathBuf;

use vgpu_abi::CUresult;

use super::sticky::loses_context;

/// Why there is no GPU to execute on.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The library is not there, or cannot be loaded.
    #[error("load the NVIDIA driver: {reason}; install it on this host")]
    Library {
        /// As it was asked for: a path, or a name that the loader looks up.
        path: PathBuf,
        /// What the loader said, which begins with the library.
        reason: String,
    },
    /// The library lacks a function.
    #[error("{path} has no {symbol}: the driver is too old; version 520 (CUDA 11.8) or later is needed")]
    TooOld {
        /// The library.
        path: PathBuf,
        /// The function.
        symbol: &'static str,
    },
    /// A call that must work failed.
    #[error(transparent)]
    Call(#[from] DriverError),
    /// No device has the UUID.
    #[error("no GPU of this host has UUID {wanted}; it has {found}")]
    NoDevice {
        /// The UUID that was asked for, or "any".
        wanted: String,
        /// The UUIDs that there are.
        found: String,
    },
    /// The GPU lacks something that the executor cannot do without.
    #[error("GPU {uuid} cannot be used: {lacks}")]
    Lacks {
        /// The GPU.
        uuid: String,
        /// What it lacks.
        lacks: &'static str,
    },
    /// The GPU has less memory than its guests' contexts alone take.
    #[error("{total} bytes of GPU memory leave nothing beside {overhead} bytes for {workers} contexts")]
    Memory {
        /// Bytes of the GPU.
        total: u64,
        /// Bytes that the contexts take.
        overhead: u64,
        /// Number of contexts.
        workers: u32,
    },
}

/// A call of the driver that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{call} returned {code}")]
pub struct DriverError {
    /// The function.
    pub call: &'static str,
    /// What it returned.
    pub code: CUresult,
}

impl DriverError {
    /// Whether the context is lost ([`super::sticky`]).
    #[must_use]
    pub(crate) fn loses_context(&self) -> bool {
        loses_context(self.code)
    }
}

/// Turns the status of `call` into a result.
pub(super) const fn check(call: &'static str, code: CUresult) -> Result<(), DriverError> {
    match code {
        CUresult::SUCCESS => Ok(()),
        code => Err(DriverError { call, code }),
    }
}

/// Logs the failure of a call in a destructor, where nothing else can be done about it. A context that is
/// lost refuses them all, which its session has logged.
pub(super) fn tell(done: Result<(), DriverError>) {
    if let Err(error) = done
        && !error.loses_context()
    {
        tracing::warn!("{error}");
    }
}
