//! "Initialization" and "Version Management".

use std::ffi::{c_int, c_uint};

use vgpu_abi::CUresult;
use vgpu_abi::driver::arg::Out;

use crate::rule::{Refusal, Rule};

calls! {
    /// `cuInit`
    pub fn cuInit(flags: c_uint) |call| {
        if flags != 0 {
            return Err(Rule::InitFlags.into());
        }
        if call.options.devices == 0 {
            return Err(Refusal::Expected(CUresult::NO_DEVICE));
        }
        call.initialized = true;
        Ok(())
    }

    /// `cuDriverGetVersion`
    pub fn cuDriverGetVersion(version: Out<c_int>) |call| {
        Ok(version.set(call.options.driver_version)?)
    }
}
