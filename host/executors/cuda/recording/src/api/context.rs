//! "Context Management" and "Primary Context Management".

use std::ffi::{c_int, c_uint, c_ulonglong};

use vgpu_abi::CUresult;
use vgpu_abi::driver::arg::{InOut, Out};
use vgpu_abi::driver::{CUcontext, CUctxCreateParams, CUdevice};

use crate::call::Call;
use crate::rule::{Answer, Refusal, Rule};

/// Bits of a context's flags that there are: how to wait, mapping of host memory, resizing, dumps, memory
/// operations.
const FLAGS: c_uint = 0x7ff;
/// The ways to wait are 0, 1, 2 and 4.
const WAITS: c_uint = 7;

fn create(call: &mut Call, out: Out<CUcontext>, flags: c_uint, device: CUdevice) -> Answer {
    let out = out.check()?;
    if flags & !FLAGS != 0 || (flags & WAITS).count_ones() > 1 {
        return Err(Rule::Argument.into());
    }
    let device = call.device(device)?;
    let bytes = call.options.context_bytes;
    call.memory.take(device, bytes)?;
    let context = call.contexts.add(device, flags, false);
    call.contexts.push(context)?;
    call.out("context", &CUcontext(context));
    Ok(out.set(CUcontext(context))?)
}

/// Waits for all work of the current context.
fn synchronize(call: &mut Call, context: usize) -> Answer {
    call.unsafe_call()?;
    call.until(|machine| !machine.work.has_work(context));
    call.fault_of(context)
}

calls! {
    /// `cuCtxCreate_v2`: the new context is current in the calling thread, above the one that was.
    pub fn cuCtxCreate_v2(context: Out<CUcontext>, flags: c_uint, device: CUdevice) |call| {
        create(call, context, flags, device)
    }

    /// `cuCtxCreate_v4`
    pub fn cuCtxCreate_v4(
        context: Out<CUcontext>, params: InOut<CUctxCreateParams>, flags: c_uint, device: CUdevice,
    ) |call| {
        // Null: as version 2. What execution affinity and graphics would add, this device does not have.
        if params.get().is_ok_and(|params| params.affinity_count != 0 || !params.cig.is_null()) {
            return Err(Refusal::Expected(CUresult::NOT_SUPPORTED));
        }
        create(call, context, flags, device)
    }

    /// `cuCtxDestroy_v2`: "regardless of how many threads it is current to"; here it must be current in no
    /// other.
    pub fn cuCtxDestroy_v2(context: CUcontext) |call| {
        if call.contexts.get(context.0)?.retained.is_some() {
            return Err(Rule::UnknownContext.into());
        }
        call.until(|machine| !machine.work.has_work(context.0));
        call.end_context(context.0)
    }

    /// `cuCtxPushCurrent_v2`
    pub fn cuCtxPushCurrent_v2(context: CUcontext) |call| { call.contexts.push(context.0) }

    /// `cuCtxPopCurrent_v2`
    pub fn cuCtxPopCurrent_v2(context: Out<CUcontext>) |call| {
        let popped = CUcontext(call.contexts.pop()?);
        context.set_if(popped);
        call.out("context", &popped);
        Ok(())
    }

    /// `cuCtxSetCurrent`
    pub fn cuCtxSetCurrent(context: CUcontext) |call| { call.contexts.set(context.0) }

    /// `cuCtxGetCurrent`
    pub fn cuCtxGetCurrent(context: Out<CUcontext>) |call| {
        let current = call.contexts.top().unwrap_or(0);
        Ok(context.set(CUcontext(current))?)
    }

    /// `cuCtxGetDevice`
    pub fn cuCtxGetDevice(device: Out<CUdevice>) |call| {
        let context = call.context()?;
        Ok(device.set(call.contexts.get(context)?.device)?)
    }

    /// `cuCtxGetFlags`
    pub fn cuCtxGetFlags(flags: Out<c_uint>) |call| {
        let context = call.context()?;
        Ok(flags.set(call.contexts.get(context)?.flags)?)
    }

    /// `cuCtxGetId`
    pub fn cuCtxGetId(context: CUcontext, id: Out<c_ulonglong>) |call| {
        let context = if context == CUcontext::NULL { call.context()? } else { context.0 };
        call.contexts.get(context)?;
        Ok(id.set(context as c_ulonglong)?)
    }

    /// `cuCtxSynchronize`
    pub fn cuCtxSynchronize() |call| {
        let context = call.context()?;
        synchronize(call, context)
    }

    /// `cuCtxGetStreamPriorityRange`
    pub fn cuCtxGetStreamPriorityRange(least: Out<c_int>, greatest: Out<c_int>) |call| {
        call.context()?;
        least.set_if(0);
        greatest.set_if(-5);
        Ok(())
    }

    /// `cuCtxSetLimit`: limits are suggestions; those that there are.
    pub fn cuCtxSetLimit(which: c_uint, value: usize) |call| {
        call.context()?;
        if which > 6 { Err(Refusal::Expected(CUresult::UNSUPPORTED_LIMIT)) } else { Ok(()) }
    }

    /// `cuDevicePrimaryCtxRetain`
    pub fn cuDevicePrimaryCtxRetain(context: Out<CUcontext>, device: CUdevice) |call| {
        let (context, device) = (context.check()?, call.device(device)?);
        let primary = if let Some(primary) = call.contexts.primary(device) {
            primary
        } else {
            let bytes = call.options.context_bytes;
            call.memory.take(device, bytes)?;
            call.contexts.add(device, 0, true)
        };
        if let Some(count) = &mut call.contexts.get_mut(primary)?.retained {
            *count += 1;
        }
        call.out("context", &CUcontext(primary));
        Ok(context.set(CUcontext(primary))?)
    }

    /// `cuDevicePrimaryCtxRelease_v2`
    pub fn cuDevicePrimaryCtxRelease_v2(device: CUdevice) |call| {
        let device = call.device(device)?;
        let primary = call.contexts.primary(device).ok_or(Rule::DestroyedContext)?;
        let retained = &mut call.contexts.get_mut(primary)?.retained;
        let left = retained.unwrap_or(0).saturating_sub(1);
        *retained = Some(left);
        if left == 0 {
            call.until(|machine| !machine.work.has_work(primary));
            call.end_context(primary)?;
        }
        Ok(())
    }

    /// `cuDevicePrimaryCtxGetState`
    pub fn cuDevicePrimaryCtxGetState(device: CUdevice, flags: Out<c_uint>, active: Out<c_int>) |call| {
        let device = call.device(device)?;
        let primary = call.contexts.primary(device);
        flags.set(primary.map_or(Ok(0), |raw| call.contexts.get(raw).map(|one| one.flags))?)?;
        Ok(active.set(c_int::from(primary.is_some()))?)
    }
}
