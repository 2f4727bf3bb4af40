//! Device management: facts of devices, answered without a message to the host.

use std::ffi::{c_char, c_int, c_uint};

use vgpu_abi::CUresult;
use vgpu_abi::driver::{CUdevice, CUdevprop, CUuuid, attribute};

use crate::arg::{Out, Text};
use crate::object::lifecycle::{self, device};
use crate::pci_bus_id;

/// One above the last `CUdevice_attribute` of CUDA 13.
const ATTRIBUTES: c_int = 162;

/// Returns the part of a text before the zeros that pad it.
fn name(facts: &[u8]) -> &[u8] {
    facts.split(|&byte| byte == 0).next().unwrap_or_default()
}

exports! {
    /// Stores the number of devices that the process sees.
    pub fn cuDeviceGetCount(count: Out<c_int>) -> CUresult {
        let devices = lifecycle::devices()?;
        count.set(c_int::try_from(devices.len()).unwrap_or(c_int::MAX))
    }

    /// Stores the handle of a device, which is its ordinal.
    pub fn cuDeviceGet(out: Out<CUdevice>, ordinal: c_int) -> CUresult {
        lifecycle::devices()?;
        let out = out.check()?;
        out.set(device(ordinal)?.ordinal())
    }

    /// Stores the product name of a device.
    pub fn cuDeviceGetName(text: Out<c_char>, bytes: c_int, ordinal: CUdevice) -> CUresult {
        let gpu = device(ordinal)?;
        text.set_text(name(&gpu.shown.facts.name), usize::try_from(bytes).unwrap_or(0))
    }

    /// Stores the UUID of a device.
    pub fn cuDeviceGetUuid(uuid: Out<CUuuid>, ordinal: CUdevice) -> CUresult {
        let gpu = device(ordinal)?;
        uuid.set(gpu.shown.facts.uuid)
    }

    /// Stores the UUID of a device. It differs from `cuDeviceGetUuid` only for GPU instances, which do not
    /// exist here.
    pub fn cuDeviceGetUuid_v2(uuid: Out<CUuuid>, ordinal: CUdevice) -> CUresult {
        let gpu = device(ordinal)?;
        uuid.set(gpu.shown.facts.uuid)
    }

    /// Stores the size of a device's memory in bytes.
    pub fn cuDeviceTotalMem_v2(bytes: Out<usize>, ordinal: CUdevice) -> CUresult {
        let gpu = device(ordinal)?;
        bytes.set(usize::try_from(gpu.shown.facts.total_bytes).unwrap_or(usize::MAX))
    }

    /// Stores the size of a device's memory in bytes as a 32-bit number, or the largest such number if there
    /// is more memory.
    pub fn cuDeviceTotalMem(bytes: Out<c_uint>, ordinal: CUdevice) -> CUresult {
        let gpu = device(ordinal)?;
        bytes.set(c_uint::try_from(gpu.shown.facts.total_bytes).unwrap_or(c_uint::MAX))
    }

    /// Stores an attribute of a device, 0 if neither the guest nor the host knows it. An id that CUDA 13 does
    /// not define is an invalid value.
    pub fn cuDeviceGetAttribute(value: Out<c_int>, id: c_int, ordinal: CUdevice) -> CUresult {
        lifecycle::devices()?;
        let out = value.check()?;
        if !(1..ATTRIBUTES).contains(&id) {
            return Err(CUresult::INVALID_VALUE);
        }
        out.set(device(ordinal)?.attribute(id))
    }

    /// Stores the compute capability of a device.
    pub fn cuDeviceComputeCapability(major: Out<c_int>, minor: Out<c_int>, ordinal: CUdevice) -> CUresult {
        let gpu = device(ordinal)?;
        let (major, minor) = (major.check()?, minor.check()?);
        major.set(gpu.attribute(attribute::COMPUTE_CAPABILITY_MAJOR))?;
        minor.set(gpu.attribute(attribute::COMPUTE_CAPABILITY_MINOR))
    }

    /// Stores the properties of a device as the oldest interface defines them.
    pub fn cuDeviceGetProperties(properties: Out<CUdevprop>, ordinal: CUdevice) -> CUresult {
        let gpu = device(ordinal)?;
        let of = |id| gpu.attribute(id);
        let three = |id| [of(id), of(id + 1), of(id + 2)];
        properties.set(CUdevprop {
            max_threads_per_block: of(attribute::MAX_THREADS_PER_BLOCK),
            max_threads_dim: three(attribute::MAX_BLOCK_DIM_X),
            max_grid_size: three(attribute::MAX_GRID_DIM_X),
            shared_mem_per_block: of(attribute::MAX_SHARED_MEMORY_PER_BLOCK),
            total_constant_memory: of(attribute::TOTAL_CONSTANT_MEMORY),
            simd_width: of(attribute::WARP_SIZE),
            mem_pitch: of(attribute::MAX_PITCH),
            regs_per_block: of(attribute::MAX_REGISTERS_PER_BLOCK),
            clock_rate: of(attribute::CLOCK_RATE),
            texture_align: of(attribute::TEXTURE_ALIGNMENT),
        })
    }

    /// Stores the PCI address of a device as text, such as "0000:00:05.0".
    pub fn cuDeviceGetPCIBusId(text: Out<c_char>, bytes: c_int, ordinal: CUdevice) -> CUresult {
        let gpu = device(ordinal)?;
        let address = gpu.queue.session.function().address.to_string();
        text.set_text(address.as_bytes(), usize::try_from(bytes).unwrap_or(0))
    }

    /// Stores the device with a PCI address. Accepts "[domain]:[bus]:[device].[function]",
    /// "[domain]:[bus]:[device]" and "[bus]:[device].[function]".
    pub fn cuDeviceGetByPCIBusId(out: Out<CUdevice>, text: Text) -> CUresult {
        let devices = lifecycle::devices()?;
        let out = out.check()?;
        let address = pci_bus_id::parse(text.get()?.to_str().unwrap_or("")).ok_or(CUresult::INVALID_VALUE)?;
        let gpu = devices.iter().find(|gpu| gpu.queue.session.function().address == address);
        out.set(gpu.ok_or(CUresult::INVALID_DEVICE)?.ordinal())
    }

    /// Stores 0, because no kind of execution affinity is supported.
    pub fn cuDeviceGetExecAffinitySupport(
        supported: Out<c_int>, kind: c_uint, ordinal: CUdevice
    ) -> CUresult {
        device(ordinal)?;
        if kind != 0 {
            return Err(CUresult::INVALID_VALUE);
        }
        supported.set(0)
    }
}
