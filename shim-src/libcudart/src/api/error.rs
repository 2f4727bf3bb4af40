//! Error handling: names and texts of codes, and the thread's last error.

use core::ffi::{CStr, c_char};

use vgpu_abi::runtime::CudaError;

use crate::{MAJOR, process, thread};

/// Name and text that NVIDIA's libraries of both majors return for an unknown code.
const UNRECOGNIZED: &CStr = c"unrecognized error code";

// Not `calls!`: the error that these return must not become the last error again.
vgpu_abi::export! {
    /// Returns the thread's last error and clears it. An error that lost the context stays, and so does a
    /// failure to initialise.
    pub fn cudaGetLastError() -> CudaError {
        process::runtime().map_or_else(Err, |_| thread::take_last().ok())
    }

    /// Returns the thread's last error without clearing it.
    pub fn cudaPeekAtLastError() -> CudaError {
        process::runtime().map_or_else(Err, |_| thread::last().ok())
    }

    /// Returns the name of a code.
    pub fn cudaGetErrorName(error: CudaError) -> raw *const c_char, UNRECOGNIZED.as_ptr() => {
        error.name(MAJOR).unwrap_or(UNRECOGNIZED).as_ptr()
    }

    /// Returns the text of a code.
    pub fn cudaGetErrorString(error: CudaError) -> raw *const c_char, UNRECOGNIZED.as_ptr() => {
        error.text(MAJOR).unwrap_or(UNRECOGNIZED).as_ptr()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
