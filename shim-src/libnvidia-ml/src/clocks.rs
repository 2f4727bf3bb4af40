//! Clocks. The device's facts contain the highest clocks; only the host knows the current ones.

use std::ffi::c_uint;

use vgpu_abi::export;
use vgpu_abi::nvml::{CLOCK_GRAPHICS, CLOCK_MEM, CLOCK_SM, CLOCK_VIDEO, NvmlReturn};

use crate::arg::Out;
use crate::driver::attribute;
use crate::find::Handle;

export! {
    /// Stores the highest clock in MHz, of the multiprocessors (which is the graphics clock too) or of the
    /// memory. CUDA's attributes have it in kHz.
    pub fn nvmlDeviceGetMaxClockInfo(device: Handle, kind: c_uint, clock: Out<c_uint>) -> NvmlReturn {
        let gpu = device.gpu()?;
        let clock = clock.check()?;
        let attribute = match kind {
            CLOCK_GRAPHICS | CLOCK_SM => attribute::CLOCK_RATE,
            CLOCK_MEM => attribute::MEMORY_CLOCK_RATE,
            CLOCK_VIDEO => return Err(NvmlReturn::NOT_SUPPORTED),
            _ => return Err(NvmlReturn::INVALID_ARGUMENT),
        };
        clock.set(gpu.attribute(attribute)? / 1000)
    }
}
