//! cuBLAS: handles, and what is set on them.

use vgpu_abi::CUresult;
use vgpu_abi::blas::BlasStatus;

use crate::handle::{Handles, Kind};
use crate::memory::Range;

/// A handle.
#[derive(Debug)]
pub struct Blas {
    /// The context in which it was made.
    pub context: usize,
    /// A stream's handle; 0 is the legacy stream.
    pub stream: usize,
    /// Memory to work in, if the program set some.
    pub workspace: Option<Range>,
    /// Scalars and results are in device memory.
    pub device_pointers: bool,
}

/// All handles.
pub type Handled = Handles<Blas>;

/// None yet.
pub const fn none() -> Handled {
    Handles::new(Kind::Blas)
}

/// A status of cuBLAS for one of the driver.
pub fn status(status: CUresult) -> Result<(), BlasStatus> {
    match status {
        CUresult::SUCCESS => Ok(()),
        CUresult::INVALID_VALUE => Err(BlasStatus::INVALID_VALUE),
        CUresult::INVALID_HANDLE | CUresult::INVALID_CONTEXT => Err(BlasStatus::NOT_INITIALIZED),
        other => Err(other.into()),
    }
}
