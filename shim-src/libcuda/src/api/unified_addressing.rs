//! Unified addressing: which kind of memory an address belongs to, answered from the process's own lists.

use std::ffi::{c_uint, c_void};

use vgpu_abi::CUresult;
use vgpu_abi::driver::CUdeviceptr;

use crate::arg::In;
use crate::object::current;
use crate::object::pointer::{find, store, value};

exports! {
    /// Stores an attribute of an address. An address that is neither device memory nor pinned memory is an
    /// invalid value, and so is an attribute that does not apply.
    pub fn cuPointerGetAttribute(data: *mut c_void, attribute: c_uint, address: CUdeviceptr) -> CUresult {
        current::context()?;
        let known = find(address)?.ok_or(CUresult::INVALID_VALUE)?;
        store(data, attribute, value(&known, attribute, address)?)
    }

    /// Stores several attributes of an address. An attribute that does not apply, or an address that is not
    /// CUDA's, yields zeros.
    pub fn cuPointerGetAttributes(
        count: c_uint, attributes: In<c_uint>, data: In<*mut c_void>, address: CUdeviceptr,
    ) -> CUresult {
        current::context()?;
        if count == 0 {
            return Err(CUresult::INVALID_VALUE);
        }
        let known = find(address)?;
        let attributes = attributes.slice(count as usize)?;
        let data = data.slice(count as usize)?;
        for (&attribute, &data) in attributes.iter().zip(data) {
            let value = known.as_ref().and_then(|known| value(known, attribute, address).ok()).unwrap_or(0);
            store(data, attribute, value)?;
        }
        Ok(())
    }
}
