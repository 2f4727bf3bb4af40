//! "Primary Context Management": the context of a device that the runtime API uses.

use std::ffi::{c_int, c_uint};

use vgpu_abi::driver::{CUcontext, CUdevice};

use crate::Result;
use crate::arg::Out;
use crate::object::context::{self, check_flags};
use crate::object::lifecycle::{self, device};
use crate::object::teardown::end_contents;

fn release(ordinal: CUdevice) -> Result {
    context::primary(device(ordinal)?)?.1.release(end_contents)
}

fn reset(ordinal: CUdevice) -> Result {
    context::primary(device(ordinal)?)?.1.reset(end_contents);
    Ok(())
}

fn set_primary_flags(ordinal: CUdevice, flags: c_uint) -> Result {
    let gpu = device(ordinal)?;
    check_flags(flags)?;
    context::primary(gpu)?.1.set_flags(flags);
    Ok(())
}

exports! {
    /// `cuDevicePrimaryCtxRetain`
    pub fn cuDevicePrimaryCtxRetain(context: Out<CUcontext>, device: CUdevice) -> CUresult {
        lifecycle::devices()?;
        let out = context.check()?;
        let gpu = lifecycle::device(device)?;
        gpu.queue.async_error()?;
        let (handle, primary) = context::primary(gpu)?;
        primary.retain();
        out.set(CUcontext(handle))
    }

    /// `cuDevicePrimaryCtxRelease_v2`
    pub fn cuDevicePrimaryCtxRelease_v2(device: CUdevice) -> CUresult { release(device) }

    /// `cuDevicePrimaryCtxRelease`
    pub fn cuDevicePrimaryCtxRelease(device: CUdevice) -> CUresult { release(device) }

    /// `cuDevicePrimaryCtxReset_v2`
    pub fn cuDevicePrimaryCtxReset_v2(device: CUdevice) -> CUresult { reset(device) }

    /// `cuDevicePrimaryCtxReset`
    pub fn cuDevicePrimaryCtxReset(device: CUdevice) -> CUresult { reset(device) }

    /// `cuDevicePrimaryCtxSetFlags_v2`
    pub fn cuDevicePrimaryCtxSetFlags_v2(device: CUdevice, flags: c_uint) -> CUresult {
        set_primary_flags(device, flags)
    }

    /// `cuDevicePrimaryCtxSetFlags`
    pub fn cuDevicePrimaryCtxSetFlags(device: CUdevice, flags: c_uint) -> CUresult {
        set_primary_flags(device, flags)
    }

    /// `cuDevicePrimaryCtxGetState`
    pub fn cuDevicePrimaryCtxGetState(device: CUdevice, flags: Out<c_uint>, active: Out<c_int>) -> CUresult {
        let (_, context) = context::primary(lifecycle::device(device)?)?;
        flags.check()?;
        active.set(c_int::from(context.active()))?;
        flags.set(context.flags())
    }
}
