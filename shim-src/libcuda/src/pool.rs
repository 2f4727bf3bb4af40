//! "Stream Ordered Memory Allocator": allocation and free in the order of a stream, and the pools that it comes from. Only where the
//! device's attribute 115 says so.
//!
//! A pool is an account here in the guest: the host takes memory from the device and gives it back in the order of the stream, so
//! that a pool never holds more than what it has given out. The settings that are about holding more, and about when memory is used
//! again, are kept as the hints that they are.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use vgpu_abi::driver::{
    CUdevice, CUdeviceptr, CUmemAccessDesc, CUmemLocation, CUmemPoolProps, CUmemoryPool, CUstream,
    MEM_ALLOCATION_PINNED, MEM_LOCATION_DEVICE, attribute, pool_attribute as id,
};
use vgpu_abi::{CUresult, export};
use vgpu_wire::body::memory::{Address, MemAllocAsync, MemFreeAsync};

use crate::arg::{In, Out};
use crate::context::device;
use crate::gpu::Gpu;
use crate::memory::{Range, Source, with_second_try};
use crate::slab::Slab;
use crate::stream::{Stream, find};
use crate::{Result, capture, life};

/// A device's pools.
#[derive(Debug, Default)]
pub struct Pools {
    /// The one that is there without being made.
    default: AtomicUsize,
    /// The one that `cuMemAllocAsync` takes from.
    current: AtomicUsize,
}

/// A pool.
#[derive(Default)]
struct Pool {
    gpu: AtomicPtr<Gpu>,
    /// The most bytes that it gives out.
    most: AtomicU64,
    /// The three settings about using memory again.
    reuse: [AtomicU32; 3],
    /// Bytes to be kept.
    threshold: AtomicU64,
    used: AtomicU64,
    /// The most of `used` since the program set one of the two attributes for it to 0.
    highest: [AtomicU64; 2],
}

static POOLS: Slab<Pool> = Slab::new(7);

impl Pool {
    fn gpu(&self) -> &'static Gpu {
        // SAFETY: `create` stored the address of a leaked value before the handle meant anything.
        unsafe { &*self.gpu.load(Ordering::Relaxed) }
    }

    /// Counts bytes that are to be given out; refuses more than there may be.
    fn charge(&self, bytes: u64) -> Result {
        let most = self.most.load(Ordering::Relaxed);
        let more = |used: u64| used.checked_add(bytes).filter(|&used| used <= most);
        let before = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        let used = before.map_err(|_| CUresult::OUT_OF_MEMORY)? + bytes;
        for highest in &self.highest {
            highest.fetch_max(used, Ordering::Relaxed);
        }
        Ok(())
    }
}

fn create(gpu: &'static Gpu, most: u64) -> Result<usize> {
    let (handle, _) = POOLS
        .insert(|_, pool| {
            pool.gpu.store(ptr::from_ref(gpu).cast_mut(), Ordering::Relaxed);
            pool.most.store(if most == 0 { u64::MAX } else { most }, Ordering::Relaxed);
            for number in [&pool.threshold, &pool.used, &pool.highest[0], &pool.highest[1]] {
                number.store(0, Ordering::Relaxed);
            }
            for setting in &pool.reuse {
                setting.store(1, Ordering::Relaxed);
            }
        })
        .ok_or(CUresult::OUT_OF_MEMORY)?;
    Ok(handle)
}

/// Makes a new device's default pool.
pub fn create_default(gpu: &'static Gpu) -> Result {
    let handle = create(gpu, 0)?;
    gpu.pools.default.store(handle, Ordering::Relaxed);
    gpu.pools.current.store(handle, Ordering::Relaxed);
    Ok(())
}

/// A range was freed: if it came from a pool that is still there, the pool has it no more.
pub fn freed(range: &Range) {
    let Source::Pool(handle) = range.source else { return };
    if let Some(pool) = POOLS.get(handle) {
        pool.used.fetch_sub(range.bytes, Ordering::Relaxed);
    }
}

fn supported(gpu: &'static Gpu) -> Result<&'static Gpu> {
    if gpu.attribute(attribute::MEMORY_POOLS_SUPPORTED) == 0 {
        return Err(CUresult::NOT_SUPPORTED);
    }
    Ok(gpu)
}

fn get(handle: CUmemoryPool) -> Result<&'static Pool> {
    life::devices()?;
    POOLS.get(handle.0).ok_or(CUresult::INVALID_VALUE)
}

fn on_device(location: CUmemLocation) -> Result<&'static Gpu> {
    if location.kind != MEM_LOCATION_DEVICE {
        return Err(CUresult::NOT_SUPPORTED);
    }
    device(location.id)
}

/// The device of a location and a kind of memory, as `cuMemGetMemPool` and its like name them.
fn of_kind(location: In<CUmemLocation>, kind: c_uint) -> Result<&'static Gpu> {
    life::devices()?;
    if kind != MEM_ALLOCATION_PINNED {
        return Err(CUresult::NOT_SUPPORTED);
    }
    supported(on_device(location.get()?)?)
}

fn allocate(out: Out<CUdeviceptr>, bytes: usize, from: Option<CUmemoryPool>, stream: &Stream) -> Result {
    let out = out.check()?;
    let gpu = supported(stream.gpu())?;
    let handle = from.map_or_else(|| gpu.pools.current.load(Ordering::Relaxed), |pool| pool.0);
    let pool = get(CUmemoryPool(handle))?;
    if capture::any() && capture::intercept(stream)? {
        // An allocation within a graph: the contract has no such node.
        return capture::fail(stream, CUresult::STREAM_CAPTURE_UNSUPPORTED);
    }
    if bytes == 0 || !ptr::eq(pool.gpu(), gpu) {
        return Err(CUresult::INVALID_VALUE);
    }
    gpu.late()?;
    let bytes = bytes as u64;
    pool.charge(bytes)?;
    let message = MemAllocAsync { reply: 0, stream: stream.lane.number(), bytes };
    let given: Result<Address> = with_second_try(gpu, || gpu.ask(message, &[]));
    let Address { address } = given.inspect_err(|_| {
        pool.used.fetch_sub(bytes, Ordering::Relaxed);
    })?;
    stream.lane.given(gpu);
    gpu.memory.add(address, bytes, Source::Pool(handle), stream.context());
    out.set(address)
}

fn free(address: u64, stream: &Stream) -> Result {
    if capture::any() && capture::intercept(stream)? {
        return capture::fail(stream, CUresult::STREAM_CAPTURE_UNSUPPORTED);
    }
    let gpu = stream.gpu();
    gpu.late()?;
    let range = gpu.memory.take(address, Range::is_allocation).ok_or(CUresult::INVALID_VALUE)?;
    freed(&range);
    stream.send(&MemFreeAsync { stream: stream.lane.number(), reserved: 0, address }, &[])
}

fn set(pool: &Pool, attribute: c_uint, value: *mut c_void) -> Result {
    // SAFETY: the export's caller promised a value of the attribute's type, or null.
    let number = unsafe { In::new(value.cast_const().cast::<c_int>()) };
    // SAFETY: as above.
    let bytes = unsafe { In::new(value.cast_const().cast::<u64>()) };
    match attribute {
        id::REUSE_FOLLOW_EVENT_DEPENDENCIES
        | id::REUSE_ALLOW_OPPORTUNISTIC
        | id::REUSE_ALLOW_INTERNAL_DEPENDENCIES => {
            pool.reuse[attribute as usize - 1].store(u32::from(number.get()? != 0), Ordering::Relaxed);
        }
        id::RELEASE_THRESHOLD => pool.threshold.store(bytes.get()?, Ordering::Relaxed),
        id::RESERVED_MEM_HIGH | id::USED_MEM_HIGH if bytes.get()? == 0 => {
            let used = pool.used.load(Ordering::Relaxed);
            pool.highest[usize::from(attribute == id::USED_MEM_HIGH)].store(used, Ordering::Relaxed);
        }
        _ => return Err(CUresult::INVALID_VALUE),
    }
    Ok(())
}

fn query(pool: &Pool, attribute: c_uint, value: *mut c_void) -> Result {
    // SAFETY: the export's caller promised room for the attribute's type, or null.
    let number = unsafe { Out::new(value.cast::<c_int>()) };
    // SAFETY: as above.
    let bytes = unsafe { Out::new(value.cast::<u64>()) };
    match attribute {
        id::REUSE_FOLLOW_EVENT_DEPENDENCIES
        | id::REUSE_ALLOW_OPPORTUNISTIC
        | id::REUSE_ALLOW_INTERNAL_DEPENDENCIES => {
            number.set(pool.reuse[attribute as usize - 1].load(Ordering::Relaxed).cast_signed())
        }
        id::RELEASE_THRESHOLD => bytes.set(pool.threshold.load(Ordering::Relaxed)),
        id::RESERVED_MEM_CURRENT | id::USED_MEM_CURRENT => bytes.set(pool.used.load(Ordering::Relaxed)),
        id::RESERVED_MEM_HIGH => bytes.set(pool.highest[0].load(Ordering::Relaxed)),
        id::USED_MEM_HIGH => bytes.set(pool.highest[1].load(Ordering::Relaxed)),
        _ => Err(CUresult::INVALID_VALUE),
    }
}

fn set_current(gpu: &'static Gpu, handle: CUmemoryPool) -> Result {
    if !ptr::eq(get(handle)?.gpu(), gpu) {
        return Err(CUresult::INVALID_VALUE);
    }
    gpu.pools.current.store(handle.0, Ordering::Relaxed);
    Ok(())
}

fn destroy(handle: CUmemoryPool) -> Result {
    let gpu = get(handle)?.gpu();
    let default = gpu.pools.default.load(Ordering::Relaxed);
    if handle.0 == default {
        return Err(CUresult::INVALID_VALUE);
    }
    POOLS.remove(handle.0, |_| ()).ok_or(CUresult::INVALID_VALUE)?;
    // What it gave out lives on. A device whose current pool it was goes back to the default one.
    let _ = gpu.pools.current.compare_exchange(handle.0, default, Ordering::Relaxed, Ordering::Relaxed);
    Ok(())
}

export! {
    /// `cuMemPoolCreate`: of a device's memory, not to be shared with other processes.
    pub fn cuMemPoolCreate(pool: Out<CUmemoryPool>, props: In<CUmemPoolProps>) -> CUresult {
        life::devices()?;
        let out = pool.check()?;
        let props = props.get()?;
        if props.kind != MEM_ALLOCATION_PINNED {
            return Err(CUresult::INVALID_VALUE);
        }
        if props.handle_types != 0 {
            return Err(CUresult::NOT_SUPPORTED);
        }
        let gpu = supported(on_device(props.location)?)?;
        out.set(CUmemoryPool(create(gpu, props.max_size as u64)?))
    }

    /// `cuMemPoolDestroy`
    pub fn cuMemPoolDestroy(pool: CUmemoryPool) -> CUresult { destroy(pool) }

    /// `cuMemPoolTrimTo`: there is nothing to be given back.
    pub fn cuMemPoolTrimTo(pool: CUmemoryPool, _least: usize) -> CUresult { get(pool).map(drop) }

    /// `cuMemPoolSetAttribute`
    pub fn cuMemPoolSetAttribute(pool: CUmemoryPool, attribute: c_uint, value: *mut c_void) -> CUresult {
        set(get(pool)?, attribute, value)
    }

    /// `cuMemPoolGetAttribute`
    pub fn cuMemPoolGetAttribute(pool: CUmemoryPool, attribute: c_uint, value: *mut c_void) -> CUresult {
        query(get(pool)?, attribute, value)
    }

    /// `cuMemPoolSetAccess`: its own device always reads and writes, another cannot reach it.
    pub fn cuMemPoolSetAccess(pool: CUmemoryPool, rights: In<CUmemAccessDesc>, count: usize) -> CUresult {
        let pool = get(pool)?;
        for right in rights.slice(count)? {
            let own = ptr::eq(on_device(right.location)?, pool.gpu());
            match right.flags {
                3 if own => {}
                0 if !own => {}
                3 => return Err(CUresult::PEER_ACCESS_UNSUPPORTED),
                _ => return Err(CUresult::INVALID_VALUE),
            }
        }
        Ok(())
    }

    /// `cuMemPoolGetAccess`
    pub fn cuMemPoolGetAccess(
        flags: Out<c_uint>, pool: CUmemoryPool, location: In<CUmemLocation>,
    ) -> CUresult {
        let pool = get(pool)?;
        let own = ptr::eq(on_device(location.get()?)?, pool.gpu());
        flags.set(if own { 3 } else { 0 })
    }

    /// `cuDeviceGetDefaultMemPool`
    pub fn cuDeviceGetDefaultMemPool(pool: Out<CUmemoryPool>, ordinal: CUdevice) -> CUresult {
        let gpu = supported(device(ordinal)?)?;
        pool.set(CUmemoryPool(gpu.pools.default.load(Ordering::Relaxed)))
    }

    /// `cuDeviceGetMemPool`
    pub fn cuDeviceGetMemPool(pool: Out<CUmemoryPool>, ordinal: CUdevice) -> CUresult {
        let gpu = supported(device(ordinal)?)?;
        pool.set(CUmemoryPool(gpu.pools.current.load(Ordering::Relaxed)))
    }

    /// `cuDeviceSetMemPool`
    pub fn cuDeviceSetMemPool(ordinal: CUdevice, pool: CUmemoryPool) -> CUresult {
        set_current(supported(device(ordinal)?)?, pool)
    }

    /// `cuMemGetDefaultMemPool`: of device memory; there are no pools of the host's.
    pub fn cuMemGetDefaultMemPool(
        pool: Out<CUmemoryPool>, location: In<CUmemLocation>, kind: c_uint,
    ) -> CUresult {
        let gpu = of_kind(location, kind)?;
        pool.set(CUmemoryPool(gpu.pools.default.load(Ordering::Relaxed)))
    }

    /// `cuMemGetMemPool`
    pub fn cuMemGetMemPool(pool: Out<CUmemoryPool>, location: In<CUmemLocation>, kind: c_uint) -> CUresult {
        let gpu = of_kind(location, kind)?;
        pool.set(CUmemoryPool(gpu.pools.current.load(Ordering::Relaxed)))
    }

    /// `cuMemSetMemPool`
    pub fn cuMemSetMemPool(location: In<CUmemLocation>, kind: c_uint, pool: CUmemoryPool) -> CUresult {
        set_current(of_kind(location, kind)?, pool)
    }
}

export_both! {
    /// `cuMemAllocAsync`
    pub fn cuMemAllocAsync, cuMemAllocAsync_ptsz(
        address: Out<CUdeviceptr>, bytes: usize, stream: CUstream
    ) |default| {
        allocate(address, bytes, None, find(stream, default)?)
    }

    /// `cuMemAllocFromPoolAsync`
    pub fn cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync_ptsz(
        address: Out<CUdeviceptr>, bytes: usize, pool: CUmemoryPool, stream: CUstream
    ) |default| {
        allocate(address, bytes, Some(pool), find(stream, default)?)
    }

    /// `cuMemFreeAsync`
    pub fn cuMemFreeAsync, cuMemFreeAsync_ptsz(address: CUdeviceptr, stream: CUstream) |default| {
        free(address, find(stream, default)?)
    }
}
