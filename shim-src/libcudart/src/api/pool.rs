//! Stream-ordered memory allocator: pools of device memory, and allocation from them in stream order.
//! Handles, properties and attributes are the driver's.

use core::ffi::{c_int, c_uint, c_void};

use vgpu_abi::driver::{CUmemAccessDesc, CUmemLocation, CUmemPoolProps, CUmemoryPool};
use vgpu_abi::runtime::{CudaError, Stream};

use crate::address::pointer;
use crate::process;

calls! {
    /// Creates a memory pool.
    pub fn cudaMemPoolCreate(pool: *mut CUmemoryPool, props: *const CUmemPoolProps) {
        process::enter()?;
        cu!(cuMemPoolCreate(pool, props))
    }

    /// Destroys a pool. Memory allocated from it remains.
    pub fn cudaMemPoolDestroy(pool: CUmemoryPool) {
        process::enter()?;
        cu!(cuMemPoolDestroy(pool))
    }

    /// Returns unused memory of a pool to the device.
    pub fn cudaMemPoolTrimTo(pool: CUmemoryPool, least: usize) {
        process::enter()?;
        cu!(cuMemPoolTrimTo(pool, least))
    }

    /// Sets an attribute of a pool.
    pub fn cudaMemPoolSetAttribute(pool: CUmemoryPool, attribute: c_uint, value: *mut c_void) {
        process::enter()?;
        cu!(cuMemPoolSetAttribute(pool, attribute, value))
    }

    /// Stores an attribute of a pool.
    pub fn cudaMemPoolGetAttribute(pool: CUmemoryPool, attribute: c_uint, value: *mut c_void) {
        process::enter()?;
        cu!(cuMemPoolGetAttribute(pool, attribute, value))
    }

    /// Sets the access rights of devices to a pool's memory.
    pub fn cudaMemPoolSetAccess(pool: CUmemoryPool, rights: *const CUmemAccessDesc, count: usize) {
        process::enter()?;
        cu!(cuMemPoolSetAccess(pool, rights, count))
    }

    /// Stores the access rights of a device to a pool's memory.
    pub fn cudaMemPoolGetAccess(flags: *mut c_uint, pool: CUmemoryPool, location: *mut CUmemLocation) {
        process::enter()?;
        cu!(cuMemPoolGetAccess(flags, pool, location))
    }

    /// Stores the handle of a device's default pool.
    pub fn cudaDeviceGetDefaultMemPool(pool: *mut CUmemoryPool, ordinal: c_int) {
        let device = process::enter()?.device(ordinal)?.handle;
        cu!(cuDeviceGetDefaultMemPool(pool, device))
    }

    /// Stores the handle of the pool from which `cudaMallocAsync` allocates.
    pub fn cudaDeviceGetMemPool(pool: *mut CUmemoryPool, ordinal: c_int) {
        let device = process::enter()?.device(ordinal)?.handle;
        cu!(cuDeviceGetMemPool(pool, device))
    }

    /// Sets the pool from which `cudaMallocAsync` allocates.
    pub fn cudaDeviceSetMemPool(ordinal: c_int, pool: CUmemoryPool) {
        let device = process::enter()?.device(ordinal)?.handle;
        cu!(cuDeviceSetMemPool(device, pool))
    }

    /// Allocates from a pool in the order of a stream. For 0 bytes it stores null.
    pub fn cudaMallocFromPoolAsync | fn cudaMallocFromPoolAsync_ptsz [stream] (
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
        if bytes != 0 {
            cu!(cuMemAllocFromPoolAsync(&raw mut start, bytes, pool, stream))?;
        }
        store!(place, pointer(start))
    }
}

#[cfg(feature = "cuda13")]
calls! {
    /// Stores the handle of a location's default pool.
    pub fn cudaMemGetDefaultMemPool(pool: *mut CUmemoryPool, location: *mut CUmemLocation, kind: c_uint) {
        process::enter()?;
        cu!(cuMemGetDefaultMemPool(pool, location, kind))
    }

    /// Stores the handle of a location's current pool.
    pub fn cudaMemGetMemPool(pool: *mut CUmemoryPool, location: *mut CUmemLocation, kind: c_uint) {
        process::enter()?;
        cu!(cuMemGetMemPool(pool, location, kind))
    }

    /// Sets the current pool of a location.
    pub fn cudaMemSetMemPool(location: *mut CUmemLocation, kind: c_uint, pool: CUmemoryPool) {
        process::enter()?;
        cu!(cuMemSetMemPool(location, kind, pool))
    }
}
