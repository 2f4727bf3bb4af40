//! Version management, driver entry points, and profiler control.

use core::ffi::{c_char, c_int, c_uint, c_void};

use vgpu_abi::driver::{PROC_FLAGS, PROC_PER_THREAD};
use vgpu_abi::runtime::CudaError;

use crate::{MAJOR, process};

/// Version that `cudaRuntimeGetVersion` stores: that of the packages whose symbols this library has (cudart
/// 12.9.79 and 13.5.37), because a program may conclude from it which names exist.
pub const RUNTIME_VERSION: c_int = if MAJOR == 13 { 13050 } else { 12090 };

fn entry_point(
    name: *const c_char,
    function: *mut *mut c_void,
    version: c_int,
    flags: u64,
    status: *mut c_uint,
) -> Result<(), CudaError> {
    process::runtime()?;
    if name.is_null() || function.is_null() || flags > PROC_FLAGS {
        return Err(CudaError::INVALID_VALUE);
    }
    cu!(cuGetProcAddress_v2(name, function, version, flags, status))
}

/// Converts the flags for the driver: where stream 0 is the per-thread default stream, the driver's
/// per-thread entry points are the default.
fn per_thread(flags: u64) -> u64 {
    if flags == 0 { PROC_PER_THREAD } else { flags }
}

/// Returns the version to request from the driver: the one for which this runtime was made, but nothing newer
/// than the driver itself.
fn version_asked() -> Result<c_int, CudaError> {
    let mut driver = 0;
    cu!(cuDriverGetVersion(&raw mut driver))?;
    Ok(driver.min(RUNTIME_VERSION))
}

calls! {
    /// Stores the runtime's version. Initialises nothing.
    pub fn cudaRuntimeGetVersion(version: *mut c_int) {
        store!(version, RUNTIME_VERSION)
    }

    /// Stores the newest CUDA version that the driver supports, or 0 if there is no device, as CUDA does
    /// without a driver. Does not initialise the runtime.
    pub fn cudaDriverGetVersion(version: *mut c_int) {
        if version.is_null() {
            return Err(CudaError::INVALID_VALUE);
        }
        match cu!(cuDriverGetVersion(version)) {
            Err(CudaError::NO_DEVICE) => store!(version, 0),
            answer => answer,
        }
    }

    /// Stores the address of a driver function with this base name.
    pub fn cudaGetDriverEntryPoint(
        name: *const c_char,
        function: *mut *mut c_void,
        flags: u64,
        status: *mut c_uint,
    ) {
        process::runtime()?;
        entry_point(name, function, version_asked()?, flags, status)
    }

    /// Stores the address of a driver function with this base name, for programs whose stream 0 is the
    /// per-thread default stream.
    pub fn cudaGetDriverEntryPoint_ptsz(
        name: *const c_char,
        function: *mut *mut c_void,
        flags: u64,
        status: *mut c_uint,
    ) {
        process::runtime()?;
        entry_point(name, function, version_asked()?, per_thread(flags), status)
    }

    /// Stores the address of a driver function with this base name, as a CUDA version defines it.
    pub fn cudaGetDriverEntryPointByVersion(
        name: *const c_char,
        function: *mut *mut c_void,
        version: c_uint,
        flags: u64,
        status: *mut c_uint,
    ) {
        entry_point(name, function, version as c_int, flags, status)
    }

    /// Stores the address of a driver function as a CUDA version defines it, for programs whose stream 0 is
    /// the per-thread default stream.
    pub fn cudaGetDriverEntryPointByVersion_ptsz(
        name: *const c_char,
        function: *mut *mut c_void,
        version: c_uint,
        flags: u64,
        status: *mut c_uint,
    ) {
        entry_point(name, function, version as c_int, per_thread(flags), status)
    }

    /// Starts the profiler, which the driver accepts without effect.
    pub fn cudaProfilerStart() {
        process::enter()?;
        cu!(cuProfilerStart())
    }

    /// Stops the profiler, which the driver accepts without effect.
    pub fn cudaProfilerStop() {
        process::enter()?;
        cu!(cuProfilerStop())
    }
}
