//! "Context Management".

use std::ffi::c_uint;

use vgpu_abi::driver::arg::Out;
use vgpu_abi::driver::{CUcontext, CUdevice};

use crate::rule::Rule;

/// Bits of a context's flags that there are: how to wait, mapping of host memory, resizing, dumps, memory
/// operations.
const FLAGS: c_uint = 0x7ff;
/// The ways to wait are 0, 1, 2 and 4.
const WAITS: c_uint = 7;

calls! {
    /// `cuCtxCreate_v2`: the new context is current in the calling thread, above the one that was.
    pub fn cuCtxCreate_v2(context: Out<CUcontext>, flags: c_uint, device: CUdevice) |call| {
        let out = context.check()?;
        if flags & !FLAGS != 0 || (flags & WAITS).count_ones() > 1 {
            return Err(Rule::Argument.into());
        }
        let device = call.device(device)?;
        let bytes = call.options.context_bytes;
        call.memory.take(device, bytes)?;
        let context = call.contexts.add(device);
        call.contexts.push(context)?;
        call.out("context", &CUcontext(context));
        Ok(out.set(CUcontext(context))?)
    }

    /// `cuCtxDestroy_v2`: "regardless of how many threads it is current to"; here it must be current in no
    /// other.
    pub fn cuCtxDestroy_v2(context: CUcontext) |call| {
        call.contexts.get(context.0)?;
        call.until(|machine| !machine.work.has_work(context.0));
        call.end_context(context.0)
    }

    /// `cuCtxSetCurrent`
    pub fn cuCtxSetCurrent(context: CUcontext) |call| { call.contexts.set(context.0) }

    /// `cuCtxSynchronize`
    pub fn cuCtxSynchronize() |call| {
        let context = call.context()?;
        call.unsafe_call()?;
        call.until(|machine| !machine.work.has_work(context));
        call.fault_of(context)
    }
}
