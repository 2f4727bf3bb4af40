//! Error codes: from the driver's to the runtime's, their names and texts, the thread's last error.

use core::ffi::{CStr, c_char};

use vgpu_abi::CUresult;
use vgpu_abi::runtime::CudaError;

use crate::{MAJOR, process, thread};

/// What real libraries of both majors answer to a number that is no code.
const UNRECOGNIZED: &CStr = c"unrecognized error code";

/// Maps a driver's status. Since CUDA 10.1 the runtime's codes are the driver's; one that this major
/// does not have is an unknown error.
#[inline]
pub fn check(status: CUresult) -> Result<(), CudaError> {
    if status.0 == 0 { Ok(()) } else { Err(translate(status)) }
}

#[cold]
fn translate(status: CUresult) -> CudaError {
    let code = CudaError(status.0);
    if code.name(MAJOR).is_some() { code } else { CudaError::UNKNOWN }
}

// Not `calls!`: what these answer must not become the last error again.
vgpu_abi::export! {
    /// Answers the thread's last error and forgets it. An error that lost the context stays, and so does a
    /// failure to initialise.
    pub fn cudaGetLastError() -> CudaError {
        process::runtime().map_or_else(Err, |_| thread::take_last().ok())
    }

    /// Answers the thread's last error.
    pub fn cudaPeekAtLastError() -> CudaError {
        process::runtime().map_or_else(Err, |_| thread::last().ok())
    }

    /// Answers the name of a code.
    pub fn cudaGetErrorName(error: CudaError) -> raw *const c_char, UNRECOGNIZED.as_ptr() => {
        error.name(MAJOR).unwrap_or(UNRECOGNIZED).as_ptr()
    }

    /// Answers the text of a code.
    pub fn cudaGetErrorString(error: CudaError) -> raw *const c_char, UNRECOGNIZED.as_ptr() => {
        error.text(MAJOR).unwrap_or(UNRECOGNIZED).as_ptr()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_that_both_have_are_the_same_number() {
        assert_eq!(check(CUresult(0)), Ok(()));
        assert_eq!(check(CUresult(2)), Err(CudaError::MEMORY_ALLOCATION));
        assert_eq!(check(CUresult(4)), Err(CudaError::CUDART_UNLOADING));
        assert_eq!(check(CUresult(719)), Err(CudaError::LAUNCH_FAILURE));
    }

    #[test]
    fn a_status_that_the_runtime_has_no_code_for_is_unknown() {
        // CUDA_ERROR_MULTICAST_RESOURCE_FULL
        assert_eq!(check(CUresult(47)), Err(CudaError::UNKNOWN));
        let recapture = check(CUresult(918));
        let expected = if MAJOR == 13 { CudaError::GRAPH_RECAPTURE_FAILURE } else { CudaError::UNKNOWN };
        assert_eq!(recapture, Err(expected));
    }

    #[test]
    fn names_and_texts_are_never_null() {
        for code in [0, 1, 11, 35, 100, 918, 10_000, u32::MAX] {
            // SAFETY: any number is a valid argument.
            let name = unsafe { cudaGetErrorName(CudaError(code)) };
            assert!(!name.is_null());
            // SAFETY: any number is a valid argument.
            let text = unsafe { cudaGetErrorString(CudaError(code)) };
            assert!(!text.is_null());
        }
        // SAFETY: any number is a valid argument.
        let text = unsafe { cudaGetErrorString(CudaError(12_345)) };
        // SAFETY: the call answers a constant, zero-ended text.
        assert_eq!(unsafe { CStr::from_ptr(text) }, c"unrecognized error code");
    }
}
