//! "Version Management" and "Driver Entry Point Access".

use core::ffi::{c_char, c_int, c_uint, c_void};

use vgpu_abi::driver::{PROC_FLAGS, PROC_PER_THREAD};
use vgpu_abi::runtime::CudaError;

use crate::{MAJOR, process};

/// The answer of `cudaRuntimeGetVersion`: the version of the packages whose symbols this library has (cudart
/// 12.9.79 and 13.5.37), because a program may take the number as a promise of the names.
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

/// Returns the flags for the driver: its per-thread entries are the default where the per-thread default
/// stream is.
fn per_thread(flags: u64) -> u64 {
    if flags == 0 { PROC_PER_THREAD } else { flags }
}

/// Returns the version asked of the driver: the one for which this runtime was made, but nothing newer than
/// the driver itself.
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

    /// Stores the newest CUDA version that the driver supports; 0, as CUDA has it without a driver, where
    /// there is no device whose version that could be. Does not initialise the runtime.
    pub fn cudaDriverGetVersion(version: *mut c_int) {
        if version.is_null() {
            return Err(CudaError::INVALID_VALUE);
        }
        match cu!(cuDriverGetVersion(version)) {
            Err(CudaError::NO_DEVICE) => store!(version, 0),
            answer => answer,
        }
    }

    /// Stores the address of a driver call by its base name.
    pub fn cudaGetDriverEntryPoint(
        name: *const c_char,
        function: *mut *mut c_void,
        flags: u64,
        status: *mut c_uint,
    ) {
        process::runtime()?;
        entry_point(name, function, version_asked()?, flags, status)
    }

    /// The same for programs compiled with the per-thread default stream.
    pub fn cudaGetDriverEntryPoint_ptsz(
        name: *const c_char,
        function: *mut *mut c_void,
        flags: u64,
        status: *mut c_uint,
    ) {
        process::runtime()?;
        entry_point(name, function, version_asked()?, per_thread(flags), status)
    }

    /// Stores the address of a driver call by its base name and the CUDA version that defines it.
    pub fn cudaGetDriverEntryPointByVersion(
        name: *const c_char,
        function: *mut *mut c_void,
        version: c_uint,
        flags: u64,
        status: *mut c_uint,
    ) {
        entry_point(name, function, version as c_int, flags, status)
    }

    /// The same for programs compiled with the per-thread default stream.
    pub fn cudaGetDriverEntryPointByVersion_ptsz(
        name: *const c_char,
        function: *mut *mut c_void,
        version: c_uint,
        flags: u64,
        status: *mut c_uint,
    ) {
        entry_point(name, function, version as c_int, per_thread(flags), status)
    }

    /// Profilers are not reached from here; starting one is accepted by the driver or not.
    pub fn cudaProfilerStart() {
        process::enter()?;
        cu!(cuProfilerStart())
    }

    /// See [`cudaProfilerStart`].
    pub fn cudaProfilerStop() {
        process::enter()?;
        cu!(cuProfilerStop())
    }
}
