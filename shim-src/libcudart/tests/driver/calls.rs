//! The runtime calls under test, as a C program declares them.

#![allow(dead_code, reason = "no test uses all of them")]

use std::ffi::{c_char, c_int, c_uint, c_void};

// The library that defines the calls.
use vgpu_libcudart as _;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Dim3(pub u32, pub u32, pub u32);

unsafe extern "C" {
    pub safe fn cudaGetLastError() -> c_uint;
    pub safe fn cudaPeekAtLastError() -> c_uint;
    pub safe fn cudaSetDevice(ordinal: c_int) -> c_uint;
    pub safe fn cudaDeviceSynchronize() -> c_uint;
    pub safe fn cudaDeviceReset() -> c_uint;
    pub fn cudaGetDevice(ordinal: *mut c_int) -> c_uint;
    pub fn cudaGetDeviceCount(count: *mut c_int) -> c_uint;
    pub fn cudaDeviceGetAttribute(value: *mut c_int, attribute: c_int, ordinal: c_int) -> c_uint;
    pub fn cudaDriverGetVersion(version: *mut c_int) -> c_uint;
    pub fn cudaRuntimeGetVersion(version: *mut c_int) -> c_uint;
    pub fn __cudaRegisterFatBinary(image: *const c_void) -> *mut *mut c_void;
    pub fn __cudaRegisterFatBinaryEnd(handle: *mut *mut c_void);
    pub fn __cudaUnregisterFatBinary(handle: *mut *mut c_void);
    pub fn __cudaRegisterFunction(
        handle: *mut *mut c_void,
        host: *const c_void,
        device: *const c_char,
        name: *const c_char,
        thread_limit: c_int,
        thread_index: *mut c_void,
        block_index: *mut c_void,
        block: *mut c_void,
        grid: *mut c_void,
        warp: *mut c_int,
    );
    pub fn __cudaRegisterVar(
        handle: *mut *mut c_void,
        host: *const c_void,
        device: *const c_char,
        name: *const c_char,
        external: c_int,
        bytes: usize,
        constant: c_int,
        global: c_int,
    );
    pub fn cudaLaunchKernel(
        host: *const c_void,
        grid: Dim3,
        block: Dim3,
        args: *mut *mut c_void,
        shared: usize,
        stream: usize,
    ) -> c_uint;
    pub fn cudaLaunchKernel_ptsz(
        host: *const c_void,
        grid: Dim3,
        block: Dim3,
        args: *mut *mut c_void,
        shared: usize,
        stream: usize,
    ) -> c_uint;
    pub fn __cudaGetKernel(kernel: *mut usize, host: *const c_void) -> c_uint;
    pub fn __cudaLaunchKernel(
        kernel: usize,
        grid: Dim3,
        block: Dim3,
        args: *mut *mut c_void,
        shared: usize,
        stream: usize,
    ) -> c_uint;
}

/// A compiled program's `.nvFatBinSegment` record.
#[repr(C)]
pub struct Wrapper {
    magic: u32,
    version: u32,
    data: *const u32,
    rest: usize,
}

/// First bytes of a container. These tests read no further.
static CONTAINER: [u32; 4] = [0xba55_ed50, 0x0010_0001, 0, 0];

impl Wrapper {
    pub fn new() -> Self {
        Self { magic: 0x4662_43b1, version: 1, data: CONTAINER.as_ptr(), rest: 0 }
    }

    /// Returns the address of the code that the driver should receive.
    pub fn code() -> usize {
        CONTAINER.as_ptr().addr()
    }
}

/// Returns the address of a host stub, which is never called.
pub fn stand_in(number: usize) -> *const c_void {
    std::ptr::without_provenance(0x40_0000 + number * 16)
}

/// Registers a fat binary and returns its handle.
pub fn fatbin(wrapper: &Wrapper) -> *mut *mut c_void {
    // SAFETY: the wrapper is one; the tests unregister before it goes, or never use it afterwards.
    let handle = unsafe { __cudaRegisterFatBinary(std::ptr::from_ref(wrapper).cast()) };
    assert!(!handle.is_null());
    handle
}

/// Registers a kernel under a host stub.
pub fn function(handle: *mut *mut c_void, host: *const c_void, name: &'static std::ffi::CStr) {
    let none = std::ptr::null_mut();
    let (device, warp) = (name.as_ptr(), std::ptr::null_mut());
    // SAFETY: the name lives as long as the program.
    unsafe { __cudaRegisterFunction(handle, host, device, device, -1, none, none, none, none, warp) };
}

/// Launches the kernel of a host stub with an ordinary shape.
pub fn launch(host: *const c_void) -> c_uint {
    // SAFETY: the driver of the tests does not look at arguments.
    unsafe { cudaLaunchKernel(host, Dim3(2, 3, 4), Dim3(5, 6, 7), std::ptr::null_mut(), 48, 0) }
}

/// Returns the thread's device, or the status of the failed call.
pub fn device() -> Result<c_int, c_uint> {
    let mut ordinal = -7;
    // SAFETY: the place is a local.
    match unsafe { cudaGetDevice(&raw mut ordinal) } {
        0 => Ok(ordinal),
        status => Err(status),
    }
}

/// Returns the number of devices, or the status of the failed call.
pub fn count() -> Result<c_int, c_uint> {
    let mut count = -7;
    // SAFETY: the place is a local.
    match unsafe { cudaGetDeviceCount(&raw mut count) } {
        0 => Ok(count),
        status => Err(status),
    }
}

/// Restores the printing of panics. The library's first call suppresses it for its own std, which is the
/// test's too here.
pub fn let_panics_print() {
    vgpu_abi::export::quiet_panics();
    drop(std::panic::take_hook());
}
