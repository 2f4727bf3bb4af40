//! Conversion of device addresses, which the runtime API writes as pointers and the driver as numbers.

use core::ffi::c_void;

use vgpu_abi::driver::CUdeviceptr;

/// Converts a device address to a pointer of the runtime API.
pub fn pointer(address: CUdeviceptr) -> *mut c_void {
    core::ptr::without_provenance_mut(address as usize)
}

/// Converts a pointer of the runtime API to a device address.
pub fn address(pointer: *const c_void) -> CUdeviceptr {
    pointer.addr() as CUdeviceptr
}
