//! Exports of the manual's chapters "Initialization" and "Version Management".

use std::ffi::{c_int, c_uint};

use vgpu_abi::CUresult;
use vgpu_abi::driver::arg::Out;

use crate::rule::{CallRefusal, Rule};
use crate::system;

calls! {
    /// Implements `cuInit`.
    pub fn cuInit(flags: c_uint) |call| {
        if flags != 0 {
            return Err(Rule::InitFlags.into());
        }
        if call.options.system_calls {
            system::start().map_err(|_| CallRefusal::Expected(CUresult::OPERATING_SYSTEM))?;
        }
        call.initialized = true;
        Ok(())
    }

    /// Implements `cuDriverGetVersion`.
    pub fn cuDriverGetVersion(version: Out<c_int>) |call| {
        Ok(version.set(call.options.driver_version)?)
    }
}
