//! Primary context management: the context of a device that the runtime API uses.

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
    /// Retains a device's primary context and stores its handle.
    pub fn cuDevicePrimaryCtxRetain(context: Out<CUcontext>, device: CUdevice) -> CUresult {
        lifecycle::devices()?;
        let out = context.check()?;
        let gpu = lifecycle::device(device)?;
        gpu.queue.async_error()?;
        let (handle, primary) = context::primary(gpu)?;
        primary.retain();
        out.set(CUcontext(handle))
    }

    /// Releases a device's primary context, which is emptied with the last release.
    pub fn cuDevicePrimaryCtxRelease_v2(device: CUdevice) -> CUresult { release(device) }

    /// Releases a device's primary context, which is emptied with the last release.
    pub fn cuDevicePrimaryCtxRelease(device: CUdevice) -> CUresult { release(device) }

    /// Ends everything that a device's primary context holds. The context's users keep it.
    pub fn cuDevicePrimaryCtxReset_v2(device: CUdevice) -> CUresult { reset(device) }

    /// Ends everything that a device's primary context holds. The context's users keep it.
    pub fn cuDevicePrimaryCtxReset(device: CUdevice) -> CUresult { reset(device) }

    /// Sets the flags of a device's primary context.
    pub fn cuDevicePrimaryCtxSetFlags_v2(device: CUdevice, flags: c_uint) -> CUresult {
        set_primary_flags(device, flags)
    }

    /// Sets the flags of a device's primary context.
    pub fn cuDevicePrimaryCtxSetFlags(device: CUdevice, flags: c_uint) -> CUresult {
        set_primary_flags(device, flags)
    }

    /// Stores flags of a device's primary context and whether it is active.
    pub fn cuDevicePrimaryCtxGetState(device: CUdevice, flags: Out<c_uint>, active: Out<c_int>) -> CUresult {
        let (_, context) = context::primary(lifecycle::device(device)?)?;
        flags.check()?;
        active.set(c_int::from(context.active()))?;
        flags.set(context.flags())
    }
}
