//! Initialisation, shutdown, and the text of a status.

use std::ffi::{c_char, c_uint};

use vgpu_abi::export;
use vgpu_abi::nvml::NvmlReturn;

use crate::session;

export! {
    /// Initialises the library. Fails if no device answers.
    pub fn nvmlInit() -> NvmlReturn {
        session::begin(0)
    }

    /// Initialises the library. Fails if no device answers.
    pub fn nvmlInit_v2() -> NvmlReturn {
        session::begin(0)
    }

    /// Initialises the library. With `NVML_INIT_FLAG_NO_GPUS` it succeeds without a device.
    pub fn nvmlInitWithFlags(flags: c_uint) -> NvmlReturn {
        session::begin(flags)
    }

    /// Undoes one initialisation of the library.
    pub fn nvmlShutdown() -> NvmlReturn {
        session::end();
        Ok(())
    }

    /// Returns the text of a status.
    pub fn nvmlErrorString(status: NvmlReturn) -> raw *const c_char, c"Unknown Error".as_ptr() => {
        status.text().as_ptr()
    }
}
