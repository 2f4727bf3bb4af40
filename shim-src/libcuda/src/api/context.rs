//! Context management: creates, destroys and selects contexts, and reads their settings.

use std::ffi::{c_int, c_uint, c_ulonglong, c_void};

use vgpu_abi::CUresult;
use vgpu_abi::driver::{CUcontext, CUctxCreateParams, CUdevice};

use crate::Result;
use crate::arg::{In, Out};
use crate::object::context::{self, Context, check_flags, get};
use crate::object::{capture, current, lifecycle, teardown};

/// The API version that `cuCtxGetApiVersion` returns for every context made by `cuCtxCreate_v2` and later.
const API_VERSION: u32 = 3020;

fn create(out: Out<CUcontext>, flags: c_uint, ordinal: CUdevice) -> Result {
    lifecycle::devices()?;
    let out = out.check()?;
    check_flags(flags)?;
    let gpu = lifecycle::device(ordinal)?;
    gpu.queue.async_error()?;
    let (handle, _) = context::create(gpu, flags)?;
    current::push(handle);
    out.set(CUcontext(handle))
}

fn destroy(handle: CUcontext) -> Result {
    lifecycle::devices()?;
    teardown::destroy(handle)
}

fn pop(out: Out<CUcontext>) -> Result {
    lifecycle::devices()?;
    if current::handle() == 0 {
        return Err(CUresult::INVALID_CONTEXT);
    }
    out.set_if(CUcontext(current::pop()));
    Ok(())
}

fn push(context: CUcontext) -> Result {
    lifecycle::devices()?;
    get(context)?;
    current::push(context.0);
    Ok(())
}

fn synchronize(context: &Context) -> Result {
    capture::forbid_unsafe()?;
    capture::forbid_in_context(context.handle())?;
    context.gpu().drain()
}

exports! {
    /// Creates a context on a device and makes it current.
    pub fn cuCtxCreate_v2(context: Out<CUcontext>, flags: c_uint, device: CUdevice) -> CUresult {
        create(context, flags, device)
    }

    /// Creates a context and makes it current. Execution affinity is not supported, because it exists for
    /// servers that share a GPU.
    pub fn cuCtxCreate_v3(
        context: Out<CUcontext>, affinity: *mut c_void, count: c_int, flags: c_uint, device: CUdevice,
    ) -> CUresult {
        lifecycle::devices()?;
        if count != 0 || !affinity.is_null() {
            return Err(if count < 0 { CUresult::INVALID_VALUE } else { CUresult::UNSUPPORTED_EXEC_AFFINITY });
        }
        create(context, flags, device)
    }

    /// Creates a context from a structure of parameters and makes it current. Execution affinity and graphics
    /// interoperation are not supported.
    pub fn cuCtxCreate_v4(
        context: Out<CUcontext>, params: In<CUctxCreateParams>, flags: c_uint, device: CUdevice,
    ) -> CUresult {
        lifecycle::devices()?;
        if !params.is_null() {
            let params = params.get()?;
            if params.affinity_count != 0 {
                return Err(CUresult::UNSUPPORTED_EXEC_AFFINITY);
            }
            if !params.cig.is_null() {
                return Err(CUresult::NOT_SUPPORTED);
            }
        }
        create(context, flags, device)
    }

    /// Destroys a context that is not primary, with everything it holds.
    pub fn cuCtxDestroy_v2(context: CUcontext) -> CUresult { destroy(context) }

    /// Destroys a context that is not primary, with everything it holds.
    pub fn cuCtxDestroy(context: CUcontext) -> CUresult { destroy(context) }

    /// Pushes a context onto the calling thread's stack, which makes it current.
    pub fn cuCtxPushCurrent_v2(context: CUcontext) -> CUresult {
        push(context)
    }

    /// Pushes a context onto the calling thread's stack, which makes it current.
    pub fn cuCtxPushCurrent(context: CUcontext) -> CUresult {
        push(context)
    }

    /// Pops the current context off the calling thread's stack and stores its handle.
    pub fn cuCtxPopCurrent_v2(context: Out<CUcontext>) -> CUresult {
        pop(context)
    }

    /// Pops the current context off the calling thread's stack and stores its handle.
    pub fn cuCtxPopCurrent(context: Out<CUcontext>) -> CUresult {
        pop(context)
    }

    /// Replaces the top of the calling thread's stack of contexts. Null pops it.
    pub fn cuCtxSetCurrent(context: CUcontext) -> CUresult {
        lifecycle::devices()?;
        if context == CUcontext::NULL {
            current::pop();
        } else if current::handle() == 0 {
            get(context)?;
            current::push(context.0);
        } else if current::handle() != context.0 {
            get(context)?;
            current::replace(context.0);
        }
        Ok(())
    }

    /// Stores the handle of the current context, or null if there is none.
    pub fn cuCtxGetCurrent(context: Out<CUcontext>) -> CUresult {
        lifecycle::devices()?;
        context.set(CUcontext(current::handle()))
    }

    /// Stores the ordinal of the current context's device.
    pub fn cuCtxGetDevice(device: Out<CUdevice>) -> CUresult { device.set(current::context()?.gpu().ordinal()) }

    /// Stores the ordinal of a context's device, or of the current context's for null.
    pub fn cuCtxGetDevice_v2(device: Out<CUdevice>, context: CUcontext) -> CUresult {
        device.set(current::or_given(context)?.gpu().ordinal())
    }

    /// Stores the `CUctx_flags` of the current context.
    pub fn cuCtxGetFlags(flags: Out<c_uint>) -> CUresult { flags.set(current::context()?.flags()) }

    /// Replaces the flags of the current context.
    pub fn cuCtxSetFlags(flags: c_uint) -> CUresult {
        let context = current::context()?;
        check_flags(flags)?;
        context.set_flags(flags);
        Ok(())
    }

    /// Stores the id of a context, which no other context of the process has had. Null names the current
    /// context.
    pub fn cuCtxGetId(context: CUcontext, id: Out<c_ulonglong>) -> CUresult {
        id.set(current::or_given(context)?.id())
    }

    /// Stores the API version of a context, which is 3020 for every context.
    pub fn cuCtxGetApiVersion(context: CUcontext, version: Out<c_uint>) -> CUresult {
        current::or_given(context)?;
        version.set(API_VERSION)
    }

    /// Waits until all work of the current context has completed. Unlike other waits it never settles for a
    /// join, so that it can return the error of the work.
    pub fn cuCtxSynchronize() -> CUresult { synchronize(current::context()?) }

    /// Waits until all work of a context has completed, or of the current context for null.
    pub fn cuCtxSynchronize_v2(context: CUcontext) -> CUresult { synchronize(current::or_given(context)?) }

    /// Stores a limit of the current context.
    pub fn cuCtxGetLimit(value: Out<usize>, which: c_uint) -> CUresult {
        value.set(current::context()?.limit(which)?)
    }

    /// Sets a limit of the current context. Hints are stored. A limit on which kernels could rely accepts
    /// only the value that it has, since the host is not told.
    pub fn cuCtxSetLimit(which: c_uint, value: usize) -> CUresult {
        current::context()?.set_limit(which, value)
    }

    /// Stores the preferred split between cache and shared memory.
    pub fn cuCtxGetCacheConfig(config: Out<c_uint>) -> CUresult {
        config.set(current::context()?.cache_config())
    }

    /// Sets the preferred split between cache and shared memory, a hint that is only stored.
    pub fn cuCtxSetCacheConfig(config: c_uint) -> CUresult {
        let context = current::context()?;
        if config > 3 {
            return Err(CUresult::INVALID_VALUE);
        }
        context.set_cache_config(config);
        Ok(())
    }

    /// Stores the width of shared memory's banks: 4 bytes, as on every GPU since compute capability 5.
    pub fn cuCtxGetSharedMemConfig(config: Out<c_uint>) -> CUresult {
        config.set(current::context()?.shared_config())
    }

    /// Accepts a width of shared memory's banks, which has no effect on GPUs since compute capability 5.
    pub fn cuCtxSetSharedMemConfig(config: c_uint) -> CUresult {
        current::context()?;
        if config > 2 { Err(CUresult::INVALID_VALUE) } else { Ok(()) }
    }

    /// Stores the least and the most urgent priority of streams on the current context's device.
    pub fn cuCtxGetStreamPriorityRange(least: Out<c_int>, greatest: Out<c_int>) -> CUresult {
        let range = context::priorities(current::context()?.gpu());
        least.set_if(range.1);
        greatest.set_if(range.0);
        Ok(())
    }

    /// Succeeds without effect, because no line of the L2 cache is persisting.
    pub fn cuCtxResetPersistingL2Cache() -> CUresult { current::context().map(drop) }
}
