//! Size and use of device memory, and the width of its bus.

use std::ffi::c_uint;

use vgpu_abi::export;
use vgpu_abi::nvml::{Memory, MemoryV2, NvmlReturn};

use crate::arg::Out;
use crate::driver::attribute;
use crate::find::Handle;

export! {
    /// Stores total, free and used memory in bytes, as the host reports it now.
    pub fn nvmlDeviceGetMemoryInfo(device: Handle, memory: Out<Memory>) -> NvmlReturn {
        let gpu = device.gpu()?;
        let memory = memory.check()?;
        let (free, total) = gpu.memory()?;
        memory.set(Memory { total, free, used: total.saturating_sub(free) })
    }

    /// Stores total, free and used memory as [`nvmlDeviceGetMemoryInfo`] does. Version 2 distinguishes
    /// reserved from allocated memory. The host does not, so all memory that is not free counts as allocated.
    pub fn nvmlDeviceGetMemoryInfo_v2(device: Handle, memory: Out<MemoryV2>) -> NvmlReturn {
        let gpu = device.gpu()?;
        if memory.version().get()? != MemoryV2::VERSION {
            return Err(NvmlReturn::ARGUMENT_VERSION_MISMATCH);
        }
        let (free, total) = gpu.memory()?;
        let used = total.saturating_sub(free);
        memory.set(MemoryV2 { version: MemoryV2::VERSION, total, reserved: 0, free, used })
    }

    /// Stores the width of the memory bus in bits.
    pub fn nvmlDeviceGetMemoryBusWidth(device: Handle, width: Out<c_uint>) -> NvmlReturn {
        width.set(device.gpu()?.attribute(attribute::GLOBAL_MEMORY_BUS_WIDTH)?)
    }
}
