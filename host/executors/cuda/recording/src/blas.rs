//! Handles of cuBLAS and their settings.

use vgpu_abi::CUresult;
use vgpu_abi::blas::BlasStatus;

use crate::handle::{HandleKind, Handles};
use crate::memory::AddressRange;

#[derive(Debug)]
pub struct Blas {
    pub context: usize,
    /// Handle of the stream in which the handle's products run; 0 is the legacy stream.
    pub stream: usize,
    /// Workspace that the program set, if it did.
    pub workspace: Option<AddressRange>,
    /// Whether scalars and results are in device memory.
    pub device_pointers: bool,
}

pub type Handled = Handles<Blas>;

pub const fn none() -> Handled {
    Handles::new(HandleKind::Blas)
}

/// Converts a status of the driver to one of cuBLAS.
pub fn status(status: CUresult) -> Result<(), BlasStatus> {
    match status {
        CUresult::SUCCESS => Ok(()),
        CUresult::INVALID_VALUE => Err(BlasStatus::INVALID_VALUE),
        CUresult::INVALID_HANDLE | CUresult::INVALID_CONTEXT => Err(BlasStatus::NOT_INITIALIZED),
        other => Err(other.into()),
    }
}
