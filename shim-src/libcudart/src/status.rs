//! Conversion of the driver's statuses to the runtime's codes.

use vgpu_abi::CUresult;
use vgpu_abi::runtime::CudaError;

use crate::MAJOR;

/// Converts a driver's status. Since CUDA 10.1 the runtime's codes are the driver's; one that this major
/// version does not have is an unknown error.
#[inline]
pub fn check(status: CUresult) -> Result<(), CudaError> {
    if status.0 == 0 { Ok(()) } else { Err(translate(status)) }
}

#[cold]
fn translate(status: CUresult) -> CudaError {
    let code = CudaError(status.0);
    if code.name(MAJOR).is_some() { code } else { CudaError::UNKNOWN }
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
}
