//! "Error Handling": names and texts of statuses. Works at any time.

use std::ffi::{CStr, c_char};
use std::ptr;

use vgpu_abi::CUresult;

use crate::Result;
use crate::arg::Out;

fn answer(text: Out<*const c_char>, found: Option<&'static CStr>) -> Result {
    text.set(found.map_or(ptr::null(), CStr::as_ptr))?;
    if found.is_none() { Err(CUresult::INVALID_VALUE) } else { Ok(()) }
}

exports! {
    /// `cuGetErrorString`. Stores null and fails for an unknown code.
    pub fn cuGetErrorString(error: CUresult, text: Out<*const c_char>) -> CUresult { answer(text, error.text()) }

    /// `cuGetErrorName`. Stores null and fails for an unknown code.
    pub fn cuGetErrorName(error: CUresult, text: Out<*const c_char>) -> CUresult { answer(text, error.name()) }
}
