//! "Initialization", "Version Management", "Error Handling".

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr;

use vgpu_abi::CUresult;
use vgpu_abi::driver::CUuuid;
use vgpu_abi::driver::arg::{In, Out};

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

    /// `cuGetExportTable`, by which NVIDIA's libraries reach each other. There are no tables here.
    pub fn cuGetExportTable(out: Out<*const c_void>, uuid: In<CUuuid>) |_call| {
        uuid.get()?;
        out.set(ptr::null())?;
        Err(Refusal::Expected(CUresult::NOT_FOUND))
    }

    /// `cuGetErrorName`
    pub fn cuGetErrorName(error: CUresult, text: Out<*const c_char>) |_call| {
        Ok(text.set(error.name().ok_or(Rule::Argument)?.as_ptr())?)
    }

    /// `cuGetErrorString`
    pub fn cuGetErrorString(error: CUresult, text: Out<*const c_char>) |_call| {
        Ok(text.set(error.text().ok_or(Rule::Argument)?.as_ptr())?)
    }
}
