//! Statuses of cuBLAS, with their names and texts.

use core::ffi::{CStr, c_uint};

use crate::CUresult;

/// `cublasStatus_t`, which is the same in cuBLAS and cuBLASLt of both CUDA majors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct BlasStatus(pub c_uint);

macro_rules! statuses {
    ($( $code:literal $konst:ident $name:literal $text:literal; )*) => {
        impl BlasStatus {
            $(
                #[doc = concat!("`", stringify!($name), "`")]
                pub const $konst: Self = Self($code);
            )*

            /// All statuses that exist, in the order of their codes.
            pub const ALL: &'static [Self] = &[ $( Self($code), )* ];

            /// Returns the status's name, as `cublasGetStatusName` does.
            #[must_use]
            pub const fn name(self) -> &'static CStr {
                match self.0 {
                    $( $code => $name, )*
                    _ => UNRECOGNIZED,
                }
            }

            /// Returns the status's text, as `cublasGetStatusString` does.
            #[must_use]
            pub const fn text(self) -> &'static CStr {
                match self.0 {
                    $( $code => $text, )*
                    _ => UNRECOGNIZED,
                }
            }
        }
    };
}

/// Name and text of an unknown code.
const UNRECOGNIZED: &CStr = c"unrecognized status";

statuses! {
    0 SUCCESS c"CUBLAS_STATUS_SUCCESS" c"success";
    1 NOT_INITIALIZED c"CUBLAS_STATUS_NOT_INITIALIZED" c"the library was not initialized";
    3 ALLOC_FAILED c"CUBLAS_STATUS_ALLOC_FAILED" c"the resource allocation failed";
    7 INVALID_VALUE c"CUBLAS_STATUS_INVALID_VALUE" c"an unsupported value or parameter was passed to the function";
    8 ARCH_MISMATCH c"CUBLAS_STATUS_ARCH_MISMATCH" c"the function requires an architectural feature absent from the device";
    11 MAPPING_ERROR c"CUBLAS_STATUS_MAPPING_ERROR" c"an access to GPU memory space failed";
    13 EXECUTION_FAILED c"CUBLAS_STATUS_EXECUTION_FAILED" c"the function failed to launch on the GPU";
    14 INTERNAL_ERROR c"CUBLAS_STATUS_INTERNAL_ERROR" c"an internal operation failed";
    15 NOT_SUPPORTED c"CUBLAS_STATUS_NOT_SUPPORTED" c"the requested functionality is not supported";
    16 LICENSE_ERROR c"CUBLAS_STATUS_LICENSE_ERROR" c"the license check failed";
}

impl BlasStatus {
    /// Status of a call during which the shim itself failed.
    pub const UNKNOWN: Self = Self::INTERNAL_ERROR;

    /// Returns `Ok` for success.
    ///
    /// # Errors
    /// Returns any other status.
    pub const fn ok(self) -> Result<(), Self> {
        if self.0 == 0 { Ok(()) } else { Err(self) }
    }
}

/// Converts libcuda's refusal of submitted work to a status of cuBLAS.
impl From<CUresult> for BlasStatus {
    fn from(status: CUresult) -> Self {
        match status {
            CUresult::SUCCESS => Self::SUCCESS,
            CUresult::OUT_OF_MEMORY => Self::ALLOC_FAILED,
            CUresult::NOT_INITIALIZED | CUresult::DEINITIALIZED => Self::NOT_INITIALIZED,
            CUresult::NOT_SUPPORTED => Self::NOT_SUPPORTED,
            _ => Self::EXECUTION_FAILED,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_texts() {
        assert_eq!(BlasStatus(15).name(), c"CUBLAS_STATUS_NOT_SUPPORTED");
        assert_eq!(BlasStatus(3).text(), c"the resource allocation failed");
        for code in [2, 4, 99, u32::MAX] {
            assert_eq!(BlasStatus(code).name(), c"unrecognized status");
            assert_eq!(BlasStatus(code).text(), c"unrecognized status");
        }
        for status in BlasStatus::ALL {
            assert!(status.name().to_bytes().starts_with(b"CUBLAS_STATUS_"));
        }
    }

    #[test]
    fn no_failure_of_the_driver_becomes_success() {
        for &status in CUresult::ALL {
            assert_eq!(BlasStatus::from(status) == BlasStatus::SUCCESS, status == CUresult::SUCCESS);
        }
    }
}
