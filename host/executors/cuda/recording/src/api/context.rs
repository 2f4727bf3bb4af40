//! Exports of the manual's chapter "Context Management".

use std::ffi::c_uint;

use vgpu_abi::driver::arg::Out;
use vgpu_abi::driver::{CUcontext, CUdevice};

use super::device::check_device;
use crate::context::CONTEXT_BYTES;
use crate::rule::Rule;

/// Valid bits of a context's flags: how to wait, mapping of host memory, resizing, dumps, memory operations.
const FLAGS: c_uint = 0x7ff;
/// Bits of the flags that select how to wait. At most one may be set.
const WAITS: c_uint = 7;

calls! {
    /// Implements `cuCtxCreate_v2`. It pushes the new context on the calling thread's stack.
    pub fn cuCtxCreate_v2(context: Out<CUcontext>, flags: c_uint, device: CUdevice) |call| {
        let out = context.check()?;
        if flags & !FLAGS != 0 || (flags & WAITS).count_ones() > 1 {
            return Err(Rule::Argument.into());
        }
        check_device(device)?;
        call.memory.acquire(CONTEXT_BYTES)?;
        let context = call.contexts.add();
        call.contexts.push(context)?;
        call.out("context", &CUcontext(context));
        Ok(out.set(CUcontext(context))?)
    }

    /// Implements `cuCtxDestroy_v2`. The manual allows it "regardless of how many threads it is current to";
    /// here the context must not be current in another thread.
    pub fn cuCtxDestroy_v2(context: CUcontext) |call| {
        call.contexts.get(context.0)?;
        call.until(|machine| !machine.work.has_work(context.0));
        call.pause(call.options.teardown_ms);
        call.end_context(context.0)
    }

    /// Implements `cuCtxSetCurrent`.
    pub fn cuCtxSetCurrent(context: CUcontext) |call| { call.contexts.set(context.0) }

    /// Implements `cuCtxSynchronize`.
    pub fn cuCtxSynchronize() |call| {
        let context = call.context()?;
        call.until(|machine| !machine.work.has_work(context));
        call.fault_of(context)
    }
}
