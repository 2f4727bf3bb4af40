//! Device addresses, which the runtime API writes as pointers and the driver as numbers.

use core::ffi::c_void;

use vgpu_abi::driver::CUdeviceptr;

/// An address as the runtime API hands it out.
pub fn pointer(address: CUdeviceptr) -> *mut c_void {
    core::ptr::without_provenance_mut(address as usize)
}

/// A pointer of the runtime API as the driver's address.
pub fn address(pointer: *const c_void) -> CUdeviceptr {
    pointer.addr() as CUdeviceptr
}
