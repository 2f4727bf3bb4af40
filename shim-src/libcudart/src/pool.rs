//! Memory pools, as far as the driver has them: handles, attributes and locations are its own.

use core::ffi::{c_int, c_uint, c_void};

use vgpu_abi::driver::CUmemLocation;
use vgpu_abi::runtime::{CudaError, Stream};

use crate::driver::CUmemoryPool;
use crate::memory::pointer;
use crate::process;

calls! {
    /// Stores a device's default pool.
    pub fn cudaDeviceGetDefaultMemPool(pool: *mut CUmemoryPool, ordinal: c_int) {
        let device = process::enter()?.device(ordinal)?;
        cu!(cuDeviceGetDefaultMemPool(pool, device.handle))
    }

    /// Stores a device's pool.
    pub fn cudaDeviceGetMemPool(pool: *mut CUmemoryPool, ordinal: c_int) {
        let device = process::enter()?.device(ordinal)?;
        cu!(cuDeviceGetMemPool(pool, device.handle))
    }

    /// Sets a device's pool.
    pub fn cudaDeviceSetMemPool(ordinal: c_int, pool: CUmemoryPool) {
        let device = process::enter()?.device(ordinal)?;
        cu!(cuDeviceSetMemPool(device.handle, pool))
    }

    /// Makes a pool.
    pub fn cudaMemPoolCreate(pool: *mut CUmemoryPool, properties: *const c_void) {
        process::enter()?;
        cu!(cuMemPoolCreate(pool, properties))
    }

    /// Ends a pool.
    pub fn cudaMemPoolDestroy(pool: CUmemoryPool) {
        process::enter()?;
        cu!(cuMemPoolDestroy(pool))
    }

    /// Stores an attribute of a pool.
    pub fn cudaMemPoolGetAttribute(pool: CUmemoryPool, attribute: c_uint, value: *mut c_void) {
        process::enter()?;
        cu!(cuMemPoolGetAttribute(pool, attribute, value))
    }

    /// Sets an attribute of a pool.
    pub fn cudaMemPoolSetAttribute(pool: CUmemoryPool, attribute: c_uint, value: *mut c_void) {
        process::enter()?;
        cu!(cuMemPoolSetAttribute(pool, attribute, value))
    }

    /// Says who may use a pool's memory.
    pub fn cudaMemPoolSetAccess(pool: CUmemoryPool, list: *const c_void, count: usize) {
        process::enter()?;
        cu!(cuMemPoolSetAccess(pool, list, count))
    }

    /// Stores whether a place may use a pool's memory.
    pub fn cudaMemPoolGetAccess(flags: *mut c_uint, pool: CUmemoryPool, place: *mut CUmemLocation) {
        process::enter()?;
        cu!(cuMemPoolGetAccess(flags, pool, place))
    }

    /// Gives what a pool holds unused back, down to some bytes.
    pub fn cudaMemPoolTrimTo(pool: CUmemoryPool, bytes: usize) {
        process::enter()?;
        cu!(cuMemPoolTrimTo(pool, bytes))
    }

    /// Allocates from a pool in the order of a stream.
    pub fn cudaMallocFromPoolAsync | cudaMallocFromPoolAsync_ptsz [stream] (
        place: *mut *mut c_void,
        bytes: usize,
        pool: CUmemoryPool,
        stream: Stream,
    ) {
        process::enter()?;
        if place.is_null() {
            return Err(CudaError::INVALID_VALUE);
        }
        let mut start = 0;
        cu!(cuMemAllocFromPoolAsync(&raw mut start, bytes, pool, stream))?;
        store!(place, pointer(start))
    }
}
