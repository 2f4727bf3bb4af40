//! Registration: the calls that a compiler puts into programs, which register fat binaries, kernels and
//! variables when the program is loaded.

use core::ffi::{c_char, c_int, c_uint, c_void};
use core::ptr;

use vgpu_abi::runtime::Dim3;

use crate::entries::List;
use crate::kernels;
use crate::registry::{register, registry};
use crate::writer::WRITER;

vgpu_abi::export! {
    /// Registers a fat binary. Returns the handle under which its contents are registered.
    pub fn __cudaRegisterFatBinary(image: *mut c_void) -> raw *mut *mut c_void, ptr::null_mut() => {
        if image.is_null() {
            return ptr::null_mut();
        }
        registry().add(image)
    }

    /// Marks the end of the contents of a fat binary.
    pub fn __cudaRegisterFatBinaryEnd(handle: *mut *mut c_void) -> raw (), () => {
        // There is nothing to do for a fat binary of another thread, or for one whose contents have ended.
        WRITER.end(handle);
    }

    /// Unregisters a fat binary and its contents.
    pub fn __cudaUnregisterFatBinary(handle: *mut *mut c_void) -> raw (), () => {
        let Some((number, fatbin)) = registry().remove(handle) else { return };
        kernels::forget(number);
        fatbin.unload();
    }

    /// Registers a kernel. The limits are hints that the image repeats.
    pub fn __cudaRegisterFunction(
        handle: *mut *mut c_void,
        host: *const c_char,
        device: *mut c_char,
        name: *const c_char,
        thread_limit: c_int,
        thread_index: *mut c_uint,
        block_index: *mut c_uint,
        block: *mut Dim3,
        grid: *mut Dim3,
        warp_size: *mut c_int,
    ) -> raw (), () => {
        let _ = (device, thread_limit, thread_index, block_index, block, grid, warp_size);
        register(handle, host.addr(), name, List::Functions);
    }

    /// Registers a variable of device code.
    pub fn __cudaRegisterVar(
        handle: *mut *mut c_void,
        host: *mut c_char,
        device: *mut c_char,
        name: *const c_char,
        external: c_int,
        bytes: usize,
        constant: c_int,
        global: c_int,
    ) -> raw (), () => {
        let _ = (device, external, bytes, constant, global);
        register(handle, host.addr(), name, List::Variables);
    }
}
