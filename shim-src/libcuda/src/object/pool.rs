//! Memory pools of the stream-ordered allocator, which exist only where the device's attribute 115 says so.
//!
//! A pool is an account here in the guest: the host allocates device memory and frees it in stream order, so
//! a pool never holds more than it has given out. The settings about holding more, and about reusing memory,
//! are stored as hints.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use vgpu_abi::CUresult;
use vgpu_abi::driver::{CUmemoryPool, attribute, pool_attribute as id};

use crate::Result;
use crate::arg::{In, Out};
use crate::object::gpu::Gpu;
use crate::object::memory::{Range, Source};
use crate::slab::Slab;

/// The record behind a `CUmemoryPool`.
#[derive(Default)]
pub struct Pool {
    gpu: AtomicPtr<Gpu>,
    /// Maximum number of bytes that may be allocated from the pool.
    most: AtomicU64,
    /// The three settings about reusing memory, stored as hints.
    reuse: [AtomicU32; 3],
    /// Number of unused bytes to keep, stored as a hint.
    threshold: AtomicU64,
    used: AtomicU64,
    /// Maximum of `used` since the program set the corresponding one of the two attributes to 0.
    highest: [AtomicU64; 2],
}

static POOLS: Slab<Pool> = Slab::new(7);

impl Pool {
    /// Returns the device whose memory the pool allocates.
    pub fn gpu(&self) -> &'static Gpu {
        // SAFETY: `create` stored the address of a leaked value before the handle meant anything.
        unsafe { &*self.gpu.load(Ordering::Relaxed) }
    }

    /// Counts bytes that are about to be allocated. Fails if the pool's maximum would be exceeded.
    pub fn charge(&self, bytes: u64) -> Result {
        let most = self.most.load(Ordering::Relaxed);
        let more = |used: u64| used.checked_add(bytes).filter(|&used| used <= most);
        let before = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        let used = before.map_err(|_| CUresult::OUT_OF_MEMORY)? + bytes;
        for highest in &self.highest {
            highest.fetch_max(used, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Counts bytes that have been freed.
    pub fn discharge(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Creates a pool of a device. `most` is the maximum number of bytes allocated from it; 0 means no limit.
pub fn create(gpu: &'static Gpu, most: u64) -> Result<CUmemoryPool> {
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
    Ok(CUmemoryPool(handle))
}

/// Creates a new device's default pool.
pub fn create_default(gpu: &'static Gpu) -> Result {
    let handle = create(gpu, 0)?.0;
    gpu.default_pool.store(handle, Ordering::Relaxed);
    gpu.current_pool.store(handle, Ordering::Relaxed);
    Ok(())
}

/// Subtracts a freed range from the pool that it came from, if that still exists.
pub fn freed(range: &Range) {
    let Source::Pool(handle) = range.source else { return };
    if let Some(pool) = POOLS.get(handle) {
        pool.discharge(range.bytes);
    }
}

/// Returns the device if it has memory pools.
pub fn supported(gpu: &'static Gpu) -> Result<&'static Gpu> {
    if gpu.attribute(attribute::MEMORY_POOLS_SUPPORTED) == 0 {
        return Err(CUresult::NOT_SUPPORTED);
    }
    Ok(gpu)
}

/// Returns the pool of a handle.
pub fn get(handle: CUmemoryPool) -> Result<&'static Pool> {
    POOLS.get(handle.0).ok_or(CUresult::INVALID_VALUE)
}

/// Returns the handle of a device's default pool.
pub fn default(gpu: &Gpu) -> CUmemoryPool {
    CUmemoryPool(gpu.default_pool.load(Ordering::Relaxed))
}

/// Returns the handle of the pool from which a device's `cuMemAllocAsync` allocates.
pub fn current(gpu: &Gpu) -> CUmemoryPool {
    CUmemoryPool(gpu.current_pool.load(Ordering::Relaxed))
}

/// Sets an attribute of a pool from the value at an address.
pub fn set(pool: &Pool, attribute: c_uint, value: *mut c_void) -> Result {
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

/// Stores an attribute of a pool at an address.
pub fn query(pool: &Pool, attribute: c_uint, value: *mut c_void) -> Result {
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

/// Sets the pool from which a device's `cuMemAllocAsync` allocates.
pub fn set_current(gpu: &'static Gpu, handle: CUmemoryPool) -> Result {
    if !ptr::eq(get(handle)?.gpu(), gpu) {
        return Err(CUresult::INVALID_VALUE);
    }
    gpu.current_pool.store(handle.0, Ordering::Relaxed);
    Ok(())
}

/// Destroys a pool that is not a device's default pool. Memory allocated from it remains.
pub fn destroy(handle: CUmemoryPool) -> Result {
    let gpu = get(handle)?.gpu();
    let default = gpu.default_pool.load(Ordering::Relaxed);
    if handle.0 == default {
        return Err(CUresult::INVALID_VALUE);
    }
    POOLS.remove(handle.0, |_| ()).ok_or(CUresult::INVALID_VALUE)?;
    // A device whose current pool this was uses its default pool again.
    let _ = gpu.current_pool.compare_exchange(handle.0, default, Ordering::Relaxed, Ordering::Relaxed);
    Ok(())
}
