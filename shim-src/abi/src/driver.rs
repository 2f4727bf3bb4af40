//! Types and codes of the driver API (`cuda.h`).

use core::ffi::c_uint;

/// Status of a driver call; 0 is success.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct CUresult(pub c_uint);
