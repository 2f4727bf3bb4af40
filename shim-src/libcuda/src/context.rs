//! Contexts: each thread's stack of them, and the calls of CUDA's chapter "Context Management".
//!
//! All contexts on a device share its session; what makes a context is its handle, its streams, events, modules and
//! allocations, which end with it. The order of the legacy stream spans the contexts of a device, which CUDA does not promise but allows.

use std::cell::{Cell, RefCell};
use std::ffi::{c_int, c_uint, c_ulonglong};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use vgpu_abi::driver::{CUcontext, CUctxCreateParams, CUdevice, attribute, limit};
use vgpu_abi::{CUresult, export};

use crate::arg::{In, Out};
use crate::gpu::Gpu;
use crate::slab::Slab;
use crate::stream::Stream;
use crate::sync::Mutex;
use crate::{Result, capture, event, graph_exec, life, memory, module, stream};

/// A context.
#[derive(Default)]
pub struct Context {
    gpu: AtomicPtr<Gpu>,
    handle: AtomicUsize,
    id: AtomicU64,
    primary: AtomicBool,
    /// A primary context: how often it was retained; it is active while that is not 0. Another: 1.
    retained: AtomicU32,
    /// Guards the changes of `retained`.
    retain: Mutex<()>,
    flags: AtomicU32,
    limits: [AtomicU64; 7],
    cache_config: AtomicU32,
    shared_config: AtomicU32,
    /// The legacy default stream.
    pub legacy: Stream,
    /// Per-thread default streams whose threads have ended.
    pub spare: Mutex<Vec<usize>>,
}

static CONTEXTS: Slab<Context> = Slab::new(1);

/// `CU_CTX_FLAGS_MASK`
const FLAGS_MASK: u32 = 0xff;
/// `CU_CTX_SCHED_MASK`: 0, 1, 2 or 4.
const SCHED_MASK: u32 = 7;
/// What CUDA starts with, by `CUlimit`: stack, printf, heap, two of dynamic parallelism, L2 fetch granularity, persisting L2.
const LIMITS: [u64; 7] = [1024, 1 << 20, 8 << 20, 2, 2048, 64, 0];
/// The API version that `cuCtxGetApiVersion` tells of every context made by `cuCtxCreate_v2` and later.
const API_VERSION: u32 = 3020;
/// Urgency that streams can be given; lower is more urgent. What CUDA has on every GPU from compute capability 7 on; a host with fewer
/// steps takes its most urgent one.
const MOST_URGENT: i32 = -5;

thread_local! {
    /// The current context's handle: the top of the stack.
    static CURRENT: Cell<usize> = const { Cell::new(0) };
    /// What lies below it.
    static BELOW: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// Makes a context.
pub fn create(gpu: &'static Gpu, primary: bool, flags: u32) -> Result<(usize, &'static Context)> {
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
    /// The device.
    #[inline]
    pub fn gpu(&self) -> &'static Gpu {
        // SAFETY: `create` stored the address of a leaked value before the handle meant anything.
        unsafe { &*self.gpu.load(Ordering::Relaxed) }
    }

    /// The context's handle.
    #[inline]
    pub fn handle(&self) -> usize {
        self.handle.load(Ordering::Relaxed)
    }

    /// Whether it can be used: it is not over, and a primary one is retained.
    #[inline]
    pub fn active(&self) -> bool {
        self.retained.load(Ordering::Acquire) != 0
    }

    /// Its flags.
    pub fn flags(&self) -> u32 {
        self.flags.load(Ordering::Relaxed)
    }

    /// Gives it other flags.
    pub fn set_flags(&self, flags: u32) {
        self.flags.store(flags, Ordering::Relaxed);
    }

    /// A primary context gets one user more.
    pub fn retain(&self) {
        let _retain = self.retain.lock();
        self.retained.fetch_add(1, Ordering::AcqRel);
    }

    /// A primary context loses a user; with the last one goes all that it holds. Nobody uses it: an invalid context.
    pub fn release(&self) -> Result {
        let _retain = self.retain.lock();
        match self.retained.load(Ordering::Acquire) {
            0 => return Err(CUresult::INVALID_CONTEXT),
            1 => self.end_contents(),
            _ => {}
        }
        self.retained.fetch_sub(1, Ordering::AcqRel);
        Ok(())
    }

    /// Ends what a primary context holds. Who retained it keeps it, empty.
    pub fn reset(&self) {
        let _retain = self.retain.lock();
        if self.active() {
            self.end_contents();
        }
        self.set_flags(0);
    }

    fn reset_settings(&self) {
        for (limit, value) in self.limits.iter().zip(LIMITS) {
            limit.store(value, Ordering::Relaxed);
        }
        self.cache_config.store(0, Ordering::Relaxed);
        self.shared_config.store(1, Ordering::Relaxed);
    }

    /// Ends all that belongs to the context.
    fn end_contents(&self) {
        let handle = self.handle();
        capture::end_context(handle);
        graph_exec::end_context(handle);
        stream::end_context(handle);
        event::end_context(handle);
        module::end_context(handle);
        memory::end_context(self.gpu(), handle);
        self.spare.lock().clear();
        self.reset_settings();
    }
}

/// The context of a handle; an ended one has a code of its own.
#[inline]
pub fn get(handle: CUcontext) -> Result<&'static Context> {
    match CONTEXTS.get(handle.0) {
        Some(context) if context.active() => Ok(context),
        Some(_) => Err(CUresult::CONTEXT_IS_DESTROYED),
        None if CONTEXTS.owns(handle.0) => Err(CUresult::CONTEXT_IS_DESTROYED),
        None => Err(CUresult::INVALID_CONTEXT),
    }
}

/// Looks at each context, active or not.
pub fn for_all(mut look: impl FnMut(&Context)) {
    for (_, context) in CONTEXTS.iter() {
        look(context);
    }
}

/// The calling thread's context.
#[inline]
pub fn current() -> Result<&'static Context> {
    life::devices()?;
    match CURRENT.get() {
        0 => Err(CUresult::INVALID_CONTEXT),
        handle => get(CUcontext(handle)),
    }
}

/// The context of a handle, or the calling thread's for null.
pub fn given_or_current(handle: CUcontext) -> Result<&'static Context> {
    if handle == CUcontext::NULL {
        return current();
    }
    life::devices()?;
    get(handle)
}

/// The device of an ordinal.
pub fn device(ordinal: CUdevice) -> Result<&'static Gpu> {
    let devices = life::devices()?;
    usize::try_from(ordinal)
        .ok()
        .and_then(|ordinal| devices.get(ordinal))
        .copied()
        .ok_or(CUresult::INVALID_DEVICE)
}

fn push(handle: usize) {
    let below = CURRENT.replace(handle);
    // The list is gone only while the thread ends: nobody will pop then.
    let _ = BELOW.try_with(|list| list.borrow_mut().push(below));
}

fn pop() -> usize {
    let below = BELOW.try_with(|list| list.borrow_mut().pop()).ok().flatten().unwrap_or(0);
    CURRENT.replace(below)
}

/// Whether flags of a context are such.
pub fn check_flags(flags: c_uint) -> Result {
    let sched = flags & SCHED_MASK;
    if flags & !FLAGS_MASK != 0 || !matches!(sched, 0 | 1 | 2 | 4) {
        return Err(CUresult::INVALID_VALUE);
    }
    Ok(())
}

fn create_current(out: Out<CUcontext>, flags: c_uint, ordinal: CUdevice) -> Result {
    life::devices()?;
    let out = out.check()?;
    check_flags(flags)?;
    let gpu = device(ordinal)?;
    gpu.late()?;
    let (handle, _) = create(gpu, false, flags)?;
    push(handle);
    out.set(CUcontext(handle))
}

fn destroy(handle: CUcontext) -> Result {
    life::devices()?;
    let context = get(handle)?;
    if context.primary.load(Ordering::Relaxed) {
        return Err(CUresult::INVALID_CONTEXT);
    }
    if CURRENT.get() == handle.0 {
        pop();
    }
    CONTEXTS
        .remove(handle.0, |context| {
            context.retained.store(0, Ordering::Release);
            context.end_contents();
        })
        .ok_or(CUresult::CONTEXT_IS_DESTROYED)
}

fn synchronize(context: &Context) -> Result {
    capture::forbid_unsafe()?;
    capture::forbid_in_context(context.handle())?;
    context.gpu().drain()
}

export! {
    /// `cuCtxCreate_v2`
    pub fn cuCtxCreate_v2(context: Out<CUcontext>, flags: c_uint, device: CUdevice) -> CUresult {
        create_current(context, flags, device)
    }

    /// `cuCtxCreate_v3`: execution affinity is for servers that share a GPU.
    pub fn cuCtxCreate_v3(
        context: Out<CUcontext>, affinity: In<u64>, count: c_int, flags: c_uint, device: CUdevice,
    ) -> CUresult {
        life::devices()?;
        if count != 0 || !affinity.is_null() {
            return Err(if count < 0 { CUresult::INVALID_VALUE } else { CUresult::UNSUPPORTED_EXEC_AFFINITY });
        }
        create_current(context, flags, device)
    }

    /// `cuCtxCreate_v4`
    pub fn cuCtxCreate_v4(
        context: Out<CUcontext>, params: In<CUctxCreateParams>, flags: c_uint, device: CUdevice,
    ) -> CUresult {
        life::devices()?;
        if !params.is_null() {
            let params = params.get()?;
            if params.affinity_count != 0 {
                return Err(CUresult::UNSUPPORTED_EXEC_AFFINITY);
            }
            if !params.cig.is_null() {
                return Err(CUresult::NOT_SUPPORTED);
            }
        }
        create_current(context, flags, device)
    }

    /// `cuCtxDestroy_v2`
    pub fn cuCtxDestroy_v2(context: CUcontext) -> CUresult { destroy(context) }

    /// `cuCtxDestroy`
    pub fn cuCtxDestroy(context: CUcontext) -> CUresult { destroy(context) }

    /// `cuCtxPushCurrent_v2`
    pub fn cuCtxPushCurrent_v2(context: CUcontext) -> CUresult {
        life::devices()?;
        get(context)?;
        push(context.0);
        Ok(())
    }

    /// `cuCtxPushCurrent`
    pub fn cuCtxPushCurrent(context: CUcontext) -> CUresult {
        life::devices()?;
        get(context)?;
        push(context.0);
        Ok(())
    }

    /// `cuCtxPopCurrent_v2`
    pub fn cuCtxPopCurrent_v2(context: Out<CUcontext>) -> CUresult {
        life::devices()?;
        if CURRENT.get() == 0 {
            return Err(CUresult::INVALID_CONTEXT);
        }
        context.set_if(CUcontext(pop()));
        Ok(())
    }

    /// `cuCtxPopCurrent`
    pub fn cuCtxPopCurrent(context: Out<CUcontext>) -> CUresult {
        life::devices()?;
        if CURRENT.get() == 0 {
            return Err(CUresult::INVALID_CONTEXT);
        }
        context.set_if(CUcontext(pop()));
        Ok(())
    }

    /// `cuCtxSetCurrent`: the top of the stack is replaced, or taken away by null.
    pub fn cuCtxSetCurrent(context: CUcontext) -> CUresult {
        life::devices()?;
        if context == CUcontext::NULL {
            pop();
        } else if CURRENT.get() == 0 {
            get(context)?;
            push(context.0);
        } else if CURRENT.get() != context.0 {
            get(context)?;
            CURRENT.set(context.0);
        }
        Ok(())
    }

    /// `cuCtxGetCurrent`
    pub fn cuCtxGetCurrent(context: Out<CUcontext>) -> CUresult {
        life::devices()?;
        context.set(CUcontext(CURRENT.get()))
    }

    /// `cuCtxGetDevice`
    pub fn cuCtxGetDevice(device: Out<CUdevice>) -> CUresult { device.set(current()?.gpu().ordinal()) }

    /// `cuCtxGetDevice_v2`
    pub fn cuCtxGetDevice_v2(device: Out<CUdevice>, context: CUcontext) -> CUresult {
        device.set(given_or_current(context)?.gpu().ordinal())
    }

    /// `cuCtxGetFlags`
    pub fn cuCtxGetFlags(flags: Out<c_uint>) -> CUresult { flags.set(current()?.flags()) }

    /// `cuCtxSetFlags`
    pub fn cuCtxSetFlags(flags: c_uint) -> CUresult {
        let context = current()?;
        check_flags(flags)?;
        context.set_flags(flags);
        Ok(())
    }

    /// `cuCtxGetId`
    pub fn cuCtxGetId(context: CUcontext, id: Out<c_ulonglong>) -> CUresult {
        id.set(given_or_current(context)?.id.load(Ordering::Relaxed))
    }

    /// `cuCtxGetApiVersion`
    pub fn cuCtxGetApiVersion(context: CUcontext, version: Out<c_uint>) -> CUresult {
        given_or_current(context)?;
        version.set(API_VERSION)
    }

    /// `cuCtxSynchronize`: really waits, so that what it returns is what happened.
    pub fn cuCtxSynchronize() -> CUresult { synchronize(current()?) }

    /// `cuCtxSynchronize_v2`
    pub fn cuCtxSynchronize_v2(context: CUcontext) -> CUresult { synchronize(given_or_current(context)?) }

    /// `cuCtxGetLimit`
    pub fn cuCtxGetLimit(value: Out<usize>, which: c_uint) -> CUresult {
        let context = current()?;
        let limit = context.limits.get(which as usize).ok_or(CUresult::UNSUPPORTED_LIMIT)?;
        value.set(limit.load(Ordering::Relaxed) as usize)
    }

    /// `cuCtxSetLimit`: hints are kept; what kernels could rely on can only be set to what they have anyway, since the
    /// host is not told.
    pub fn cuCtxSetLimit(which: c_uint, value: usize) -> CUresult {
        let context = current()?;
        let limit = context.limits.get(which as usize).ok_or(CUresult::UNSUPPORTED_LIMIT)?;
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

    /// `cuCtxGetCacheConfig`
    pub fn cuCtxGetCacheConfig(config: Out<c_uint>) -> CUresult {
        config.set(current()?.cache_config.load(Ordering::Relaxed))
    }

    /// `cuCtxSetCacheConfig`: a hint, kept.
    pub fn cuCtxSetCacheConfig(config: c_uint) -> CUresult {
        let context = current()?;
        if config > 3 {
            return Err(CUresult::INVALID_VALUE);
        }
        context.cache_config.store(config, Ordering::Relaxed);
        Ok(())
    }

    /// `cuCtxGetSharedMemConfig`: banks of 4 bytes, as on every GPU since compute capability 5.
    pub fn cuCtxGetSharedMemConfig(config: Out<c_uint>) -> CUresult {
        config.set(current()?.shared_config.load(Ordering::Relaxed))
    }

    /// `cuCtxSetSharedMemConfig`: has no effect on GPUs since compute capability 5.
    pub fn cuCtxSetSharedMemConfig(config: c_uint) -> CUresult {
        current()?;
        if config > 2 { Err(CUresult::INVALID_VALUE) } else { Ok(()) }
    }

    /// `cuCtxGetStreamPriorityRange`
    pub fn cuCtxGetStreamPriorityRange(least: Out<c_int>, greatest: Out<c_int>) -> CUresult {
        let range = priorities(current()?.gpu());
        least.set_if(range.1);
        greatest.set_if(range.0);
        Ok(())
    }

    /// `cuCtxResetPersistingL2Cache`: nothing is kept there.
    pub fn cuCtxResetPersistingL2Cache() -> CUresult { current().map(drop) }

    /// `cuCtxEnablePeerAccess`: devices do not reach each other's memory.
    pub fn cuCtxEnablePeerAccess(peer: CUcontext, flags: c_uint) -> CUresult {
        let context = current()?;
        let peer = get(peer)?;
        if flags != 0 {
            return Err(CUresult::INVALID_VALUE);
        }
        Err(if ptr::eq(context, peer) {
            CUresult::INVALID_CONTEXT
        } else if ptr::eq(context.gpu(), peer.gpu()) {
            CUresult::INVALID_DEVICE
        } else {
            CUresult::PEER_ACCESS_UNSUPPORTED
        })
    }

    /// `cuCtxDisablePeerAccess`
    pub fn cuCtxDisablePeerAccess(peer: CUcontext) -> CUresult {
        current()?;
        get(peer)?;
        Err(CUresult::PEER_ACCESS_NOT_ENABLED)
    }
}

/// The most and the least urgent priority.
pub fn priorities(gpu: &Gpu) -> (c_int, c_int) {
    if gpu.attribute(attribute::STREAM_PRIORITIES_SUPPORTED) == 0 { (0, 0) } else { (MOST_URGENT, 0) }
}
