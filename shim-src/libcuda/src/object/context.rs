//! Contexts. All contexts on a device share its session. A context consists of its handle, its settings, and
//! the streams, events, modules and allocations that end with it. The order of the legacy stream spans the
//! contexts of a device, which CUDA does not promise but allows.

use std::ffi::{c_int, c_uint};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use vgpu_abi::CUresult;
use vgpu_abi::driver::{CUcontext, attribute, limit};

use crate::Result;
use crate::object::gpu::Gpu;
use crate::object::stream::Stream;
use crate::slab::Slab;
use crate::sync::Mutex;

/// The record behind a `CUcontext`.
#[derive(Default)]
pub struct Context {
    gpu: AtomicPtr<Gpu>,
    handle: AtomicUsize,
    id: AtomicU64,
    primary: AtomicBool,
    /// Number of users of a primary context, which is active while there are any. For any other context, 1
    /// until it ends.
    retained: AtomicU32,
    /// Held while `retained` is changed.
    retain: Mutex<()>,
    flags: AtomicU32,
    limits: [AtomicU64; 7],
    cache_config: AtomicU32,
    shared_config: AtomicU32,
    /// The legacy default stream of the context.
    pub legacy: Stream,
    /// Handles of per-thread default streams whose threads have ended.
    pub spare: Mutex<Vec<usize>>,
}

static CONTEXTS: Slab<Context> = Slab::new(1);

/// `CU_CTX_FLAGS_MASK`, all flags of contexts.
const FLAGS_MASK: u32 = 0xff;
/// `CU_CTX_SCHED_MASK`, the flags of which only one may be set: 1, 2 or 4.
const SCHED_MASK: u32 = 7;
/// CUDA's initial limits, indexed by `CUlimit`: stack of a thread, buffer of `printf` and heap in bytes,
/// depth and number of launches of dynamic parallelism, bytes of an L2 fetch, bytes of persisting L2.
const LIMITS: [u64; 7] = [1024, 1 << 20, 8 << 20, 2, 2048, 64, 0];
/// The most urgent priority of a stream; lower is more urgent. CUDA has it on every GPU from compute
/// capability 7 on. A host with fewer levels uses its most urgent one.
const MOST_URGENT: i32 = -5;

/// Creates a context on a device and returns its handle.
pub fn create(gpu: &'static Gpu, flags: u32) -> Result<(usize, &'static Context)> {
    insert(gpu, false, flags)
}

/// Creates the primary context of a new device. It is not active yet.
pub fn create_primary(gpu: &'static Gpu) -> Result {
    let (handle, _) = insert(gpu, true, 0)?;
    gpu.primary.store(handle, Ordering::Release);
    Ok(())
}

fn insert(gpu: &'static Gpu, primary: bool, flags: u32) -> Result<(usize, &'static Context)> {
    static IDS: AtomicU64 = AtomicU64::new(0);
    CONTEXTS
        .insert(|handle, context| {
            context.gpu.store(ptr::from_ref(gpu).cast_mut(), Ordering::Relaxed);
            context.handle.store(handle, Ordering::Relaxed);
            context.id.store(IDS.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
            context.primary.store(primary, Ordering::Relaxed);
            context.retained.store(u32::from(!primary), Ordering::Relaxed);
            context.flags.store(flags, Ordering::Relaxed);
            context.reset_settings();
            context.legacy.prepare_legacy(gpu, handle);
            context.spare.lock().clear();
        })
        .ok_or(CUresult::OUT_OF_MEMORY)
}

impl Context {
    /// Returns the context's device.
    #[inline]
    pub fn gpu(&self) -> &'static Gpu {
        // SAFETY: `insert` stored the address of a leaked value before the handle meant anything.
        unsafe { &*self.gpu.load(Ordering::Relaxed) }
    }

    /// Returns the context's handle.
    #[inline]
    pub fn handle(&self) -> usize {
        self.handle.load(Ordering::Relaxed)
    }

    /// Returns a number that no other context of the process has had.
    pub fn id(&self) -> u64 {
        self.id.load(Ordering::Relaxed)
    }

    /// Returns whether this is a device's primary context.
    pub fn is_primary(&self) -> bool {
        self.primary.load(Ordering::Relaxed)
    }

    /// Returns whether the context can be used: it has not ended, and a primary context is retained.
    #[inline]
    pub fn active(&self) -> bool {
        self.retained.load(Ordering::Acquire) != 0
    }

    /// Returns the `CUctx_flags` that the context was created with.
    pub fn flags(&self) -> u32 {
        self.flags.load(Ordering::Relaxed)
    }

    /// Replaces the context's flags.
    pub fn set_flags(&self, flags: u32) {
        self.flags.store(flags, Ordering::Relaxed);
    }

    /// Adds a user to a primary context.
    pub fn retain(&self) {
        let _retain = self.retain.lock();
        self.retained.fetch_add(1, Ordering::AcqRel);
    }

    /// Removes a user from a primary context. With the last one, `end_contents` ends everything that the
    /// context holds. Fails without users.
    pub fn release(&self, end_contents: impl FnOnce(&Self)) -> Result {
        let _retain = self.retain.lock();
        match self.retained.load(Ordering::Acquire) {
            0 => return Err(CUresult::INVALID_CONTEXT),
            1 => end_contents(self),
            _ => {}
        }
        self.retained.fetch_sub(1, Ordering::AcqRel);
        Ok(())
    }

    /// Ends the contents of an active primary context through `end_contents`, and resets its flags. Its users
    /// keep it.
    pub fn reset(&self, end_contents: impl FnOnce(&Self)) {
        let _retain = self.retain.lock();
        if self.active() {
            end_contents(self);
        }
        self.set_flags(0);
    }

    /// Resets limits and configurations to their initial values.
    pub fn reset_settings(&self) {
        for (limit, value) in self.limits.iter().zip(LIMITS) {
            limit.store(value, Ordering::Relaxed);
        }
        self.cache_config.store(0, Ordering::Relaxed);
        self.shared_config.store(1, Ordering::Relaxed);
    }

    /// Returns the limit with a number of `CUlimit`.
    pub fn limit(&self, which: c_uint) -> Result<usize> {
        let limit = self.limits.get(which as usize).ok_or(CUresult::UNSUPPORTED_LIMIT)?;
        Ok(limit.load(Ordering::Relaxed) as usize)
    }

    /// Sets a limit. Hints are stored. A limit on which kernels could rely accepts only the value that it
    /// has, since the host is not told.
    pub fn set_limit(&self, which: c_uint, value: usize) -> Result {
        let limit = self.limits.get(which as usize).ok_or(CUresult::UNSUPPORTED_LIMIT)?;
        let most = match which {
            limit::MAX_L2_FETCH_GRANULARITY => 128,
            limit::PERSISTING_L2_CACHE_SIZE => usize::MAX,
            _ => LIMITS[which as usize] as usize,
        };
        if value > most {
            return Err(CUresult::UNSUPPORTED_LIMIT);
        }
        limit.store(value as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Returns the preferred split between cache and shared memory (`CUfunc_cache`), a hint that is only
    /// stored.
    pub fn cache_config(&self) -> u32 {
        self.cache_config.load(Ordering::Relaxed)
    }

    /// Stores the preferred split between cache and shared memory.
    pub fn set_cache_config(&self, config: u32) {
        self.cache_config.store(config, Ordering::Relaxed);
    }

    /// Returns the width of shared memory's banks (`CUsharedconfig`).
    pub fn shared_config(&self) -> u32 {
        self.shared_config.load(Ordering::Relaxed)
    }
}

/// Returns the context of a handle. A context that has ended has an error of its own.
#[inline]
pub fn get(handle: CUcontext) -> Result<&'static Context> {
    match CONTEXTS.get(handle.0) {
        Some(context) if context.active() => Ok(context),
        Some(_) => Err(CUresult::CONTEXT_IS_DESTROYED),
        None if CONTEXTS.owns(handle.0) => Err(CUresult::CONTEXT_IS_DESTROYED),
        None => Err(CUresult::INVALID_CONTEXT),
    }
}

/// Returns a device's primary context, active or not, with its handle.
pub fn primary(gpu: &Gpu) -> Result<(usize, &'static Context)> {
    let handle = gpu.primary.load(Ordering::Acquire);
    CONTEXTS.get(handle).map(|context| (handle, context)).ok_or(CUresult::UNKNOWN)
}

/// Calls `each` with every context, active or not.
pub fn for_all(mut each: impl FnMut(&Context)) {
    for (_, context) in CONTEXTS.iter() {
        each(context);
    }
}

/// Ends a context that is not primary. Its contents end through `end_contents`.
pub fn remove(handle: CUcontext, end_contents: impl FnOnce(&Context)) -> Result {
    CONTEXTS
        .remove(handle.0, |context| {
            context.retained.store(0, Ordering::Release);
            end_contents(context);
        })
        .ok_or(CUresult::CONTEXT_IS_DESTROYED)
}

/// Checks the flags of a context.
pub fn check_flags(flags: c_uint) -> Result {
    let sched = flags & SCHED_MASK;
    if flags & !FLAGS_MASK != 0 || !matches!(sched, 0 | 1 | 2 | 4) {
        return Err(CUresult::INVALID_VALUE);
    }
    Ok(())
}

/// Returns the most and the least urgent priority of a device's streams.
pub fn priorities(gpu: &Gpu) -> (c_int, c_int) {
    if gpu.attribute(attribute::STREAM_PRIORITIES_SUPPORTED) == 0 { (0, 0) } else { (MOST_URGENT, 0) }
}
