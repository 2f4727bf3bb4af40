//! "Device Management": facts of devices, answered without a message. And the questions about peers.

use std::ffi::{c_char, c_int, c_uint};

use vgpu_abi::driver::{CUdevice, CUdevprop, CUuuid, attribute};
use vgpu_abi::{CUresult, export};
use vgpu_transport::PciAddress;

use crate::arg::{Out, Text};
use crate::context::device;
use crate::life;

/// One above the last `CUdevice_attribute` of CUDA 13.
const ATTRIBUTES: c_int = 162;
/// `CUdevice_P2PAttribute`: 1 to 5.
const P2P_ATTRIBUTES: c_uint = 5;

fn name(facts: &[u8]) -> &[u8] {
    facts.split(|&byte| byte == 0).next().unwrap_or_default()
}

export! {
    /// `cuDeviceGetCount`
    pub fn cuDeviceGetCount(count: Out<c_int>) -> CUresult {
        let devices = life::devices()?;
        count.set(c_int::try_from(devices.len()).unwrap_or(c_int::MAX))
    }

    /// `cuDeviceGet`
    pub fn cuDeviceGet(out: Out<CUdevice>, ordinal: c_int) -> CUresult {
        life::devices()?;
        let out = out.check()?;
        out.set(device(ordinal)?.ordinal())
    }

    /// `cuDeviceGetName`
    pub fn cuDeviceGetName(text: Out<c_char>, bytes: c_int, ordinal: CUdevice) -> CUresult {
        let gpu = device(ordinal)?;
        text.set_text(name(&gpu.shown.facts.name), usize::try_from(bytes).unwrap_or(0))
    }

    /// `cuDeviceGetUuid`
    pub fn cuDeviceGetUuid(uuid: Out<CUuuid>, ordinal: CUdevice) -> CUresult {
        let gpu = device(ordinal)?;
        uuid.set(gpu.shown.facts.uuid)
    }

    /// `cuDeviceGetUuid_v2`: the same, there are no parts of GPUs here.
    pub fn cuDeviceGetUuid_v2(uuid: Out<CUuuid>, ordinal: CUdevice) -> CUresult {
        let gpu = device(ordinal)?;
        uuid.set(gpu.shown.facts.uuid)
    }

    /// `cuDeviceTotalMem_v2`
    pub fn cuDeviceTotalMem_v2(bytes: Out<usize>, ordinal: CUdevice) -> CUresult {
        let gpu = device(ordinal)?;
        bytes.set(usize::try_from(gpu.shown.facts.total_bytes).unwrap_or(usize::MAX))
    }

    /// `cuDeviceTotalMem`, of the time of 32 bits: more than they hold is told as all that they hold.
    pub fn cuDeviceTotalMem(bytes: Out<c_uint>, ordinal: CUdevice) -> CUresult {
        let gpu = device(ordinal)?;
        bytes.set(c_uint::try_from(gpu.shown.facts.total_bytes).unwrap_or(c_uint::MAX))
    }

    /// `cuDeviceGetAttribute`
    pub fn cuDeviceGetAttribute(value: Out<c_int>, id: c_int, ordinal: CUdevice) -> CUresult {
        life::devices()?;
        let out = value.check()?;
        if !(1..ATTRIBUTES).contains(&id) {
            return Err(CUresult::INVALID_VALUE);
        }
        out.set(device(ordinal)?.attribute(id))
    }

    /// `cuDeviceComputeCapability`
    pub fn cuDeviceComputeCapability(major: Out<c_int>, minor: Out<c_int>, ordinal: CUdevice) -> CUresult {
        let gpu = device(ordinal)?;
        let (major, minor) = (major.check()?, minor.check()?);
        major.set(gpu.attribute(attribute::COMPUTE_CAPABILITY_MAJOR))?;
        minor.set(gpu.attribute(attribute::COMPUTE_CAPABILITY_MINOR))
    }

    /// `cuDeviceGetProperties`
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

    /// `cuDeviceGetPCIBusId`: "0000:00:05.0".
    pub fn cuDeviceGetPCIBusId(text: Out<c_char>, bytes: c_int, ordinal: CUdevice) -> CUresult {
        let gpu = device(ordinal)?;
        let address = gpu.session.function().address.to_string();
        text.set_text(address.as_bytes(), usize::try_from(bytes).unwrap_or(0))
    }

    /// `cuDeviceGetByPCIBusId`: "[domain]:[bus]:[device].[function]", "[domain]:[bus]:[device]" or "[bus]:[device].[function]".
    pub fn cuDeviceGetByPCIBusId(out: Out<CUdevice>, text: Text) -> CUresult {
        let devices = life::devices()?;
        let out = out.check()?;
        let address = parse_address(text.get()?.to_str().unwrap_or("")).ok_or(CUresult::INVALID_VALUE)?;
        let gpu = devices.iter().find(|gpu| gpu.session.function().address == address);
        out.set(gpu.ok_or(CUresult::INVALID_DEVICE)?.ordinal())
    }

    /// `cuDeviceGetExecAffinitySupport`: none.
    pub fn cuDeviceGetExecAffinitySupport(supported: Out<c_int>, kind: c_uint, ordinal: CUdevice) -> CUresult {
        device(ordinal)?;
        if kind != 0 {
            return Err(CUresult::INVALID_VALUE);
        }
        supported.set(0)
    }

    /// `cuDeviceCanAccessPeer`: devices do not reach each other's memory; copies between them go through the guest.
    pub fn cuDeviceCanAccessPeer(can: Out<c_int>, ordinal: CUdevice, peer: CUdevice) -> CUresult {
        device(ordinal)?;
        device(peer)?;
        can.set(0)
    }

    /// `cuDeviceGetP2PAttribute`: all 0, for the same reason.
    pub fn cuDeviceGetP2PAttribute(value: Out<c_int>, id: c_uint, from: CUdevice, to: CUdevice) -> CUresult {
        device(from)?;
        device(to)?;
        if id == 0 || id > P2P_ATTRIBUTES {
            return Err(CUresult::INVALID_VALUE);
        }
        if from == to {
            return Err(CUresult::INVALID_DEVICE);
        }
        value.set(0)
    }
}

/// Reads a PCI address with or without its domain and its function.
fn parse_address(text: &str) -> Option<PciAddress> {
    let (text, function) = match text.split_once('.') {
        Some((text, function)) => (text, hex(function, 7)?),
        None => (text, 0),
    };
    let mut parts = text.rsplit(':');
    let device = hex(parts.next()?, 31)?;
    let bus = hex(parts.next()?, 255)?;
    let domain = parts.next().map_or(Some(0), |domain| hex(domain, u32::MAX))?;
    parts.next().is_none().then_some(PciAddress {
        domain,
        bus: bus as u8,
        device: device as u8,
        function: function as u8,
    })
}

fn hex(text: &str, most: u32) -> Option<u32> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    u32::from_str_radix(text, 16).ok().filter(|&value| value <= most)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn addresses_in_all_their_forms() {
        let expected = PciAddress { domain: 0, bus: 0x1a, device: 5, function: 0 };
        for text in ["0000:1a:05.0", "0:1A:5.0", "1a:05.0", "1a:05", "0000:1a:05"] {
            assert_eq!(parse_address(text), Some(expected), "{text}");
        }
        for text in
            ["", ":", "1a", "0000:1a:05.8", "0000:1a:20.0", "0000:100:05.0", "x:1a:05.0", "0:0:0:0.0", "+1:2"]
        {
            assert_eq!(parse_address(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_shown_is_found(domain: u32, bus: u8, device in 0_u8..32, function in 0_u8..8) {
            let address = PciAddress { domain, bus, device, function };
            prop_assert_eq!(parse_address(&address.to_string()), Some(address));
        }

        #[test]
        fn any_text_is_read_without_a_panic(text in ".{0,24}") {
            let _ = parse_address(&text);
        }
    }
}
