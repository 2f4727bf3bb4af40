//! Statuses of NVML, with their texts.

use core::ffi::{CStr, c_uint};

use crate::CUresult;

/// `nvmlReturn_t`, the status of an NVML call; 0 is success.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct NvmlReturn(pub c_uint);

macro_rules! statuses {
    ($( $code:literal $konst:ident $name:literal $text:literal; )*) => {
        impl NvmlReturn {
            $(
                #[doc = concat!("`", $name, "`")]
                pub const $konst: Self = Self($code);
            )*

            /// All statuses that exist, in the order of their codes.
            pub const ALL: &'static [Self] = &[ $( Self($code), )* ];

            /// Returns the status's text, as `nvmlErrorString` does.
            #[must_use]
            pub const fn text(self) -> &'static CStr {
                match self.0 {
                    $( $code => $text, )*
                    _ => c"Unknown Error",
                }
            }
        }
    };
}

statuses! {
    0 SUCCESS "NVML_SUCCESS" c"Success";
    1 UNINITIALIZED "NVML_ERROR_UNINITIALIZED" c"Uninitialized";
    2 INVALID_ARGUMENT "NVML_ERROR_INVALID_ARGUMENT" c"Invalid Argument";
    3 NOT_SUPPORTED "NVML_ERROR_NOT_SUPPORTED" c"Not Supported";
    4 NO_PERMISSION "NVML_ERROR_NO_PERMISSION" c"Insufficient Permissions";
    5 ALREADY_INITIALIZED "NVML_ERROR_ALREADY_INITIALIZED" c"Already Initialized";
    6 NOT_FOUND "NVML_ERROR_NOT_FOUND" c"Not Found";
    7 INSUFFICIENT_SIZE "NVML_ERROR_INSUFFICIENT_SIZE" c"Insufficient Size";
    8 INSUFFICIENT_POWER "NVML_ERROR_INSUFFICIENT_POWER" c"Insufficient External Power";
    9 DRIVER_NOT_LOADED "NVML_ERROR_DRIVER_NOT_LOADED" c"Driver Not Loaded";
    10 TIMEOUT "NVML_ERROR_TIMEOUT" c"Timeout";
    11 IRQ_ISSUE "NVML_ERROR_IRQ_ISSUE" c"Interrupt Request Issue";
    12 LIBRARY_NOT_FOUND "NVML_ERROR_LIBRARY_NOT_FOUND" c"NVML Shared Library Not Found";
    13 FUNCTION_NOT_FOUND "NVML_ERROR_FUNCTION_NOT_FOUND" c"Function Not Found";
    14 CORRUPTED_INFOROM "NVML_ERROR_CORRUPTED_INFOROM" c"Corrupted infoROM";
    15 GPU_IS_LOST "NVML_ERROR_GPU_IS_LOST" c"GPU is lost";
    16 RESET_REQUIRED "NVML_ERROR_RESET_REQUIRED" c"GPU requires reset";
    17 OPERATING_SYSTEM "NVML_ERROR_OPERATING_SYSTEM" c"GPU access blocked by the operating system";
    18 LIB_RM_VERSION_MISMATCH "NVML_ERROR_LIB_RM_VERSION_MISMATCH" c"Driver/library version mismatch";
    19 IN_USE "NVML_ERROR_IN_USE" c"In use by another client";
    20 MEMORY "NVML_ERROR_MEMORY" c"Insufficient Memory";
    21 NO_DATA "NVML_ERROR_NO_DATA" c"No data";
    22 VGPU_ECC_NOT_SUPPORTED "NVML_ERROR_VGPU_ECC_NOT_SUPPORTED" c"vGPU ECC not supported";
    23 INSUFFICIENT_RESOURCES "NVML_ERROR_INSUFFICIENT_RESOURCES" c"Insufficient Resources";
    24 FREQ_NOT_SUPPORTED "NVML_ERROR_FREQ_NOT_SUPPORTED" c"Invalid Frequency";
    25 ARGUMENT_VERSION_MISMATCH "NVML_ERROR_ARGUMENT_VERSION_MISMATCH" c"Argument version mismatch";
    26 DEPRECATED "NVML_ERROR_DEPRECATED" c"Requested functionality has been deprecated";
    27 NOT_READY "NVML_ERROR_NOT_READY" c"System is not in ready state";
    28 GPU_NOT_FOUND "NVML_ERROR_GPU_NOT_FOUND" c"No supported GPUs were found";
    29 INVALID_STATE "NVML_ERROR_INVALID_STATE" c"Resource not in correct state to perform requested operation";
    30 RESET_TYPE_NOT_SUPPORTED "NVML_ERROR_RESET_TYPE_NOT_SUPPORTED" c"Unknown Error";
    999 UNKNOWN "NVML_ERROR_UNKNOWN" c"Unknown Error";
}

impl NvmlReturn {
    /// Returns `Ok` for success.
    ///
    /// # Errors
    /// Returns any other status.
    pub const fn ok(self) -> Result<(), Self> {
        if self.0 == 0 { Ok(()) } else { Err(self) }
    }
}

/// Converts libcuda's status to NVML's. A driver without a device counts as no driver; a process that may not
/// use it, because it was forked or is exiting, counts as not initialised.
impl From<CUresult> for NvmlReturn {
    fn from(status: CUresult) -> Self {
        match status {
            CUresult::SUCCESS => Self::SUCCESS,
            CUresult::NOT_INITIALIZED | CUresult::DEINITIALIZED => Self::UNINITIALIZED,
            CUresult::NO_DEVICE => Self::DRIVER_NOT_LOADED,
            CUresult::SYSTEM_NOT_READY => Self::NOT_READY,
            CUresult::SYSTEM_DRIVER_MISMATCH => Self::LIB_RM_VERSION_MISMATCH,
            CUresult::DEVICE_UNAVAILABLE => Self::GPU_IS_LOST,
            CUresult::OUT_OF_MEMORY => Self::MEMORY,
            CUresult::NOT_SUPPORTED => Self::NOT_SUPPORTED,
            CUresult::NOT_PERMITTED => Self::NO_PERMISSION,
            CUresult::INVALID_DEVICE | CUresult::INVALID_VALUE => Self::INVALID_ARGUMENT,
            _ => Self::UNKNOWN,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts() {
        assert_eq!(NvmlReturn(9).text(), c"Driver Not Loaded");
        assert_eq!(NvmlReturn(31).text(), c"Unknown Error");
        assert_eq!(NvmlReturn::ALL.len(), 32);
    }

    #[test]
    fn no_failure_of_the_driver_becomes_success() {
        for &status in CUresult::ALL {
            assert_eq!(NvmlReturn::from(status) == NvmlReturn::SUCCESS, status == CUresult::SUCCESS);
        }
        assert_eq!(NvmlReturn::from(CUresult(12345)), NvmlReturn::UNKNOWN);
    }
}
