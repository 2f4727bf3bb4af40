//! "Stream Ordered Memory Allocator": pools of device memory, and allocation from them in the order of a
//! stream. Handles, properties and attributes are the driver's.

use core::ffi::{c_int, c_uint, c_void};

use vgpu_abi::driver::{CUmemAccessDesc, CUmemLocation, CUmemPoolProps, CUmemoryPool};
use vgpu_abi::runtime::{CudaError, Stream};

use crate::address::pointer;
use crate::process;

calls! {
    /// Makes a pool.
    pub fn cudaMemPoolCreate(pool: *mut CUmemoryPool, props: *const CUmemPoolProps) {
        process::enter()?;
        cu!(cuMemPoolCreate(pool, props))
    }

    /// Ends a pool; what was allocated from it stays.
    pub fn cudaMemPoolDestroy(pool: CUmemoryPool) {
        process::enter()?;
        cu!(cuMemPoolDestroy(pool))
    }

    /// Gives back to the device what nobody has.
    pub fn cudaMemPoolTrimTo(pool: CUmemoryPool, least: usize) {
        process::enter()?;
        cu!(cuMemPoolTrimTo(pool, least))
    }

    /// Changes a setting of a pool.
    pub fn cudaMemPoolSetAttribute(pool: CUmemoryPool, attribute: c_uint, value: *mut c_void) {
        process::enter()?;
        cu!(cuMemPoolSetAttribute(pool, attribute, value))
    }

    /// Stores a setting or a figure of a pool.
    pub fn cudaMemPoolGetAttribute(pool: CUmemoryPool, attribute: c_uint, value: *mut c_void) {
        process::enter()?;
        cu!(cuMemPoolGetAttribute(pool, attribute, value))
    }

    /// Lets devices reach a pool's memory.
    pub fn cudaMemPoolSetAccess(pool: CUmemoryPool, rights: *const CUmemAccessDesc, count: usize) {
        process::enter()?;
        cu!(cuMemPoolSetAccess(pool, rights, count))
    }

    /// Stores how a device may reach a pool's memory.
    pub fn cudaMemPoolGetAccess(flags: *mut c_uint, pool: CUmemoryPool, location: *mut CUmemLocation) {
        process::enter()?;
        cu!(cuMemPoolGetAccess(flags, pool, location))
    }

    /// Stores the pool that a device has from the beginning.
    pub fn cudaDeviceGetDefaultMemPool(pool: *mut CUmemoryPool, ordinal: c_int) {
        let device = process::enter()?.device(ordinal)?.handle;
        cu!(cuDeviceGetDefaultMemPool(pool, device))
    }

    /// Stores the pool from which `cudaMallocAsync` takes.
    pub fn cudaDeviceGetMemPool(pool: *mut CUmemoryPool, ordinal: c_int) {
        let device = process::enter()?.device(ordinal)?.handle;
        cu!(cuDeviceGetMemPool(pool, device))
    }

    /// Chooses the pool from which `cudaMallocAsync` takes.
    pub fn cudaDeviceSetMemPool(ordinal: c_int, pool: CUmemoryPool) {
        let device = process::enter()?.device(ordinal)?.handle;
        cu!(cuDeviceSetMemPool(device, pool))
    }

    /// Allocates from a pool in the order of a stream; nothing for no bytes.
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
    /// Stores the pool that a place has from the beginning.
    pub fn cudaMemGetDefaultMemPool(pool: *mut CUmemoryPool, location: *mut CUmemLocation, kind: c_uint) {
        process::enter()?;
        cu!(cuMemGetDefaultMemPool(pool, location, kind))
    }

    /// Stores the pool from which allocations at a place come.
    pub fn cudaMemGetMemPool(pool: *mut CUmemoryPool, location: *mut CUmemLocation, kind: c_uint) {
        process::enter()?;
        cu!(cuMemGetMemPool(pool, location, kind))
    }

    /// Chooses the pool from which allocations at a place come.
    pub fn cudaMemSetMemPool(location: *mut CUmemLocation, kind: c_uint, pool: CUmemoryPool) {
        process::enter()?;
        cu!(cuMemSetMemPool(location, kind, pool))
    }
}
