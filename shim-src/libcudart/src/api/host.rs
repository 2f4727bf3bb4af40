//! Memory management: host memory that is allocated as pinned or registered.

use core::ffi::{c_uint, c_void};
use core::ptr;

use vgpu_abi::runtime::CudaError;

use crate::address::pointer;
use crate::process;

/// All flags of `cudaHostAlloc`: `cudaHostAllocPortable`, `Mapped` and `WriteCombined`, which have the
/// driver's values.
const ALLOC_FLAGS: c_uint = 7;
/// All flags of `cudaHostRegister`: `cudaHostRegisterPortable`, `Mapped`, `IoMemory` and `ReadOnly`, which
/// have the driver's values.
const REGISTER_FLAGS: c_uint = 15;

fn allocate(place: *mut *mut c_void, bytes: usize, flags: c_uint) -> Result<(), CudaError> {
    process::enter()?;
    if place.is_null() || flags & !ALLOC_FLAGS != 0 {
        return Err(CudaError::INVALID_VALUE);
    }
    let mut memory = ptr::null_mut();
    if bytes != 0 {
        cu!(cuMemHostAlloc(&raw mut memory, bytes, flags))?;
    }
    store!(place, memory)
}

calls! {
    /// Allocates pinned host memory.
    pub fn cudaMallocHost(place: *mut *mut c_void, bytes: usize) {
        allocate(place, bytes, 0)
    }

    /// Allocates pinned host memory with flags.
    pub fn cudaHostAlloc(place: *mut *mut c_void, bytes: usize, flags: c_uint) {
        allocate(place, bytes, flags)
    }

    /// Frees pinned host memory.
    pub fn cudaFreeHost(memory: *mut c_void) {
        process::enter()?;
        if memory.is_null() { Ok(()) } else { cu!(cuMemFreeHost(memory)) }
    }

    /// Registers host memory, which this project's driver does not support.
    pub fn cudaHostRegister(memory: *mut c_void, bytes: usize, flags: c_uint) {
        process::enter()?;
        if memory.is_null() || bytes == 0 || flags & !REGISTER_FLAGS != 0 {
            return Err(CudaError::INVALID_VALUE);
        }
        cu!(cuMemHostRegister_v2(memory, bytes, flags))
    }

    /// Ends a registration of host memory. Fails, because this project's driver makes none.
    pub fn cudaHostUnregister(memory: *mut c_void) {
        process::enter()?;
        if memory.is_null() {
            return Err(CudaError::INVALID_VALUE);
        }
        cu!(cuMemHostUnregister(memory))
    }

    /// Stores the device address of host memory, which this project's driver does not support.
    pub fn cudaHostGetDevicePointer(place: *mut *mut c_void, memory: *mut c_void, flags: c_uint) {
        process::enter()?;
        if place.is_null() || memory.is_null() {
            return Err(CudaError::INVALID_VALUE);
        }
        let mut address = 0;
        cu!(cuMemHostGetDevicePointer_v2(&raw mut address, memory, flags))?;
        store!(place, pointer(address))
    }

    /// Stores the flags with which host memory was allocated.
    pub fn cudaHostGetFlags(flags: *mut c_uint, memory: *mut c_void) {
        process::enter()?;
        if flags.is_null() || memory.is_null() {
            return Err(CudaError::INVALID_VALUE);
        }
        cu!(cuMemHostGetFlags(flags, memory))
    }
}
