//! Stream-ordered memory allocator: allocation and free in stream order, and the pools that the memory comes
//! from.

use std::ffi::{c_uint, c_void};
use std::ptr;

use vgpu_abi::CUresult;
use vgpu_abi::driver::{
    CUdevice, CUdeviceptr, CUmemAccessDesc, CUmemLocation, CUmemPoolProps, CUmemoryPool, CUstream,
    MEM_ALLOCATION_PINNED,
};

use crate::Result;
use crate::arg::{In, Out};
use crate::object::address::at;
use crate::object::allocation::{allocate_ordered, free_ordered};
use crate::object::default_stream::find;
use crate::object::gpu::Gpu;
use crate::object::lifecycle::{self, device};
use crate::object::pool::{self, Pool, supported};

/// Returns the pool of a handle. Fails if CUDA is not initialised.
fn get(handle: CUmemoryPool) -> Result<&'static Pool> {
    lifecycle::devices()?;
    pool::get(handle)
}

/// Returns the device of a location and a kind of memory, as `cuMemGetMemPool` names them.
fn of_kind(location: In<CUmemLocation>, kind: c_uint) -> Result<&'static Gpu> {
    lifecycle::devices()?;
    if kind != MEM_ALLOCATION_PINNED {
        return Err(CUresult::NOT_SUPPORTED);
    }
    supported(at(location.get()?)?)
}

exports! {
    /// Creates a pool, which has memory of one device and cannot be shared with other processes.
    pub fn cuMemPoolCreate(pool: Out<CUmemoryPool>, props: In<CUmemPoolProps>) -> CUresult {
        lifecycle::devices()?;
        let out = pool.check()?;
        let props = props.get()?;
        if props.kind != MEM_ALLOCATION_PINNED {
            return Err(CUresult::INVALID_VALUE);
        }
        if props.handle_types != 0 {
            return Err(CUresult::NOT_SUPPORTED);
        }
        let gpu = supported(at(props.location)?)?;
        out.set(pool::create(gpu, props.max_size as u64)?)
    }

    /// Destroys a pool. Memory allocated from it remains.
    pub fn cuMemPoolDestroy(pool: CUmemoryPool) -> CUresult {
        get(pool)?;
        pool::destroy(pool)
    }

    /// Succeeds without effect, because a pool holds no memory that it could return.
    pub fn cuMemPoolTrimTo(pool: CUmemoryPool, _least: usize) -> CUresult { get(pool).map(drop) }

    /// Sets an attribute of a pool.
    pub fn cuMemPoolSetAttribute(pool: CUmemoryPool, attribute: c_uint, value: *mut c_void) -> CUresult {
        pool::set(get(pool)?, attribute, value)
    }

    /// Stores an attribute of a pool.
    pub fn cuMemPoolGetAttribute(pool: CUmemoryPool, attribute: c_uint, value: *mut c_void) -> CUresult {
        pool::query(get(pool)?, attribute, value)
    }

    /// Sets access rights of a pool. The pool's own device always reads and writes, and no other device can
    /// access it.
    pub fn cuMemPoolSetAccess(pool: CUmemoryPool, rights: In<CUmemAccessDesc>, count: usize) -> CUresult {
        let pool = get(pool)?;
        for right in rights.slice(count)? {
            let own = ptr::eq(at(right.location)?, pool.gpu());
            match right.flags {
                3 if own => {}
                0 if !own => {}
                3 => return Err(CUresult::PEER_ACCESS_UNSUPPORTED),
                _ => return Err(CUresult::INVALID_VALUE),
            }
        }
        Ok(())
    }

    /// Stores the access rights of a device to a pool's memory.
    pub fn cuMemPoolGetAccess(
        flags: Out<c_uint>, pool: CUmemoryPool, location: In<CUmemLocation>,
    ) -> CUresult {
        let pool = get(pool)?;
        let own = ptr::eq(at(location.get()?)?, pool.gpu());
        flags.set(if own { 3 } else { 0 })
    }

    /// Stores the handle of a device's default pool.
    pub fn cuDeviceGetDefaultMemPool(pool: Out<CUmemoryPool>, ordinal: CUdevice) -> CUresult {
        let gpu = supported(device(ordinal)?)?;
        pool.set(pool::default(gpu))
    }

    /// Stores the handle of the pool from which a device's `cuMemAllocAsync` allocates.
    pub fn cuDeviceGetMemPool(pool: Out<CUmemoryPool>, ordinal: CUdevice) -> CUresult {
        let gpu = supported(device(ordinal)?)?;
        pool.set(pool::current(gpu))
    }

    /// Sets the pool from which a device's `cuMemAllocAsync` allocates.
    pub fn cuDeviceSetMemPool(ordinal: CUdevice, pool: CUmemoryPool) -> CUresult {
        pool::set_current(supported(device(ordinal)?)?, pool)
    }

    /// Stores the handle of a location's default pool. Only device memory has pools.
    pub fn cuMemGetDefaultMemPool(
        pool: Out<CUmemoryPool>, location: In<CUmemLocation>, kind: c_uint,
    ) -> CUresult {
        let gpu = of_kind(location, kind)?;
        pool.set(pool::default(gpu))
    }

    /// Stores the handle of a location's current pool.
    pub fn cuMemGetMemPool(pool: Out<CUmemoryPool>, location: In<CUmemLocation>, kind: c_uint) -> CUresult {
        let gpu = of_kind(location, kind)?;
        pool.set(pool::current(gpu))
    }

    /// Sets the current pool of a location.
    pub fn cuMemSetMemPool(location: In<CUmemLocation>, kind: c_uint, pool: CUmemoryPool) -> CUresult {
        pool::set_current(of_kind(location, kind)?, pool)
    }
}

export_ptsz! {
    /// Allocates memory from the current pool of the stream's device, in the order of the stream.
    pub fn cuMemAllocAsync, fn cuMemAllocAsync_ptsz(
        address: Out<CUdeviceptr>, bytes: usize, stream: CUstream
    ) |default| {
        let stream = find(stream, default)?;
        let out = address.check()?;
        out.set(allocate_ordered(bytes, None, stream)?)
    }

    /// Allocates memory from a pool of the stream's device, in the order of the stream.
    pub fn cuMemAllocFromPoolAsync, fn cuMemAllocFromPoolAsync_ptsz(
        address: Out<CUdeviceptr>, bytes: usize, pool: CUmemoryPool, stream: CUstream
    ) |default| {
        let stream = find(stream, default)?;
        let out = address.check()?;
        out.set(allocate_ordered(bytes, Some(pool), stream)?)
    }

    /// Frees an allocation, of a pool or of `cuMemAlloc`, in the order of a stream.
    pub fn cuMemFreeAsync, fn cuMemFreeAsync_ptsz(address: CUdeviceptr, stream: CUstream) |default| {
        free_ordered(address, find(stream, default)?)
    }
}
