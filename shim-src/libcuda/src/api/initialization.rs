//! Initialisation and version management.

use std::ffi::{c_int, c_uint};

use vgpu_abi::CUresult;

use crate::arg::Out;
use crate::object::lifecycle;

exports! {
    /// Initialises CUDA in this process: scans the bus and opens the visible devices. A session starts with the
    /// first call that needs one.
    pub fn cuInit(flags: c_uint) -> CUresult {
        lifecycle::status()?;
        if flags != 0 {
            return Err(CUresult::INVALID_VALUE);
        }
        lifecycle::initialise()
    }

    /// Stores the CUDA version of the driver. Can be called before `cuInit`. The version is a fact of the
    /// first device, so the call fails without a device.
    pub fn cuDriverGetVersion(version: Out<c_int>) -> CUresult {
        let out = version.check()?;
        let gpu = match lifecycle::devices() {
            Ok(devices) => *devices.first().ok_or(CUresult::NO_DEVICE)?,
            Err(_) => lifecycle::attached()?.gpu(0)?,
        };
        out.set(c_int::try_from(gpu.shown.facts.driver_version).unwrap_or(0))
    }
}
