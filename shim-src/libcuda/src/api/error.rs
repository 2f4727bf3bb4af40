//! Error handling: names and texts of statuses. Can be called before `cuInit`.

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
    /// Stores the text of a status. For an unknown code it stores null and fails.
    pub fn cuGetErrorString(error: CUresult, text: Out<*const c_char>) -> CUresult { answer(text, error.text()) }

    /// Stores the name of a status. For an unknown code it stores null and fails.
    pub fn cuGetErrorName(error: CUresult, text: Out<*const c_char>) -> CUresult { answer(text, error.name()) }
}
