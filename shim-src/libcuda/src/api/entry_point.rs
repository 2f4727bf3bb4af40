//! Driver entry point access: looks up functions by base name and CUDA version.

use std::ffi::{c_int, c_void};
use std::ptr;

use vgpu_abi::CUresult;

use crate::arg::{Out, Text};
use crate::entry_point::{Query, look_up};

exports! {
    /// Stores the address of a function. An unknown name is not an error: the function is null and `status`
    /// says why. Can be called before `cuInit`.
    pub fn cuGetProcAddress_v2(
        symbol: Text, function: Out<*mut c_void>, version: c_int, flags: u64, status: Out<u32>,
    ) -> CUresult {
        let out = function.check()?;
        let found = look_up(symbol, version, flags)?;
        status.set_if(found.err().unwrap_or(Query::Success) as u32);
        out.set(found.unwrap_or(ptr::null_mut()))
    }

    /// Stores the address of a function. An unknown name is an error.
    pub fn cuGetProcAddress(
        symbol: Text, function: Out<*mut c_void>, version: c_int, flags: u64
    ) -> CUresult {
        let out = function.check()?;
        out.set(look_up(symbol, version, flags)?.map_err(|_| CUresult::NOT_FOUND)?)
    }
}
