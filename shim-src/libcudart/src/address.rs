//! Device addresses, which the runtime API writes as pointers and the driver as numbers.

use core::ffi::c_void;

use vgpu_abi::driver::CUdeviceptr;

/// Returns a device address in the runtime API's form.
pub fn pointer(address: CUdeviceptr) -> *mut c_void {
    core::ptr::without_provenance_mut(address as usize)
}

/// Returns a pointer of the runtime API as a device address.
pub fn address(pointer: *const c_void) -> CUdeviceptr {
    pointer.addr() as CUdeviceptr
}
