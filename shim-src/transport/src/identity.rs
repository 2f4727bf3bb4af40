//! Identity of a device, as its registers state it.

use vgpu_wire::{area, registers as reg};

use crate::areas::Areas;
use crate::open_error::OpenError;
use crate::registers::{Registers, wide};
use crate::sysfs::PciFunction;

/// Values of a device's identity registers, read at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Value of register `PROTOCOL_VER`.
    pub protocol: u32,
    /// Capability bits that the device announces.
    pub capabilities: u32,
    /// Wire version of the host.
    pub wire_version: u32,
    /// Table digest of the host.
    pub digest: u64,
    /// Generation of the device, which changes when it is restarted.
    pub generation: u32,
    /// Whether the executor accepts sessions.
    pub executor_ready: bool,
    /// Size of the window in MiB.
    pub window_mib: u32,
    /// Number of channels.
    pub channels: u32,
    /// Attached channels, one bit each.
    pub attached: u64,
    /// Whether the host wakes sleeping threads by futex.
    pub wake_futex: bool,
    /// Id of the virtual machine.
    pub vm_id: u32,
}

/// Registers that identify the device. Of these, a device of version 1 has only the first two.
const IDENTITY: [u32; 13] = [
    reg::PROTOCOL_VER,
    reg::CAPABILITIES,
    reg::V2_WIRE_VERSION,
    reg::V2_DIGEST_LO,
    reg::V2_DIGEST_HI,
    reg::V2_GENERATION,
    reg::V2_EXECUTOR,
    reg::V2_WINDOW_MIB,
    reg::V2_CHANNELS,
    reg::V2_ATTACHED_LO,
    reg::V2_ATTACHED_HI,
    reg::V2_WAKE,
    reg::VM_ID,
];
/// Registers that state the position of the channels' areas.
const PLACE: [u32; 3] = [reg::V2_AREA_BASE_LO, reg::V2_AREA_BASE_HI, reg::V2_AREA_STRIDE];

/// Reads registers of a function. If they read all ones, the function is gone.
pub(crate) fn read<const N: usize>(
    registers: &dyn Registers,
    function: &PciFunction,
    offsets: [u32; N],
) -> Result<[u32; N], OpenError> {
    match registers.read(offsets) {
        Ok(values) if values[0] == reg::ALL_ONES => {
            Err(OpenError::Gone { function: function.address.to_string() })
        }
        Ok(values) => Ok(values),
        Err(error) => Err(OpenError::from_read(function, &error)),
    }
}

/// Number of registers that [`probe`] reads.
pub(crate) const ALL: usize = IDENTITY.len() + PLACE.len();

/// Reads the identity of the device and the position of its areas at the same time.
pub(crate) fn probe(
    read: impl FnOnce([u32; ALL]) -> Result<[u32; ALL], OpenError>,
) -> Result<(Probe, Areas), OpenError> {
    let mut offsets = [0; ALL];
    offsets[..IDENTITY.len()].copy_from_slice(&IDENTITY);
    offsets[IDENTITY.len()..].copy_from_slice(&PLACE);
    let values = read(offsets)?;
    let probe = Probe {
        protocol: values[0],
        capabilities: values[1],
        wire_version: values[2],
        digest: wide(values[3], values[4]),
        generation: values[5],
        executor_ready: values[6] == reg::EXECUTOR_READY,
        window_mib: values[7],
        channels: values[8],
        attached: wide(values[9], values[10]),
        wake_futex: values[11] & reg::WAKE_FUTEX != 0,
        vm_id: values[12],
    };
    let areas =
        Areas { base: wide(values[13], values[14]), stride: u64::from(values[15]), channels: probe.channels };
    Ok((probe, areas))
}

/// Reads the identity of the device and the position of its areas, and checks every value, because a device
/// may state anything.
pub(crate) fn identify(
    function: &PciFunction,
    read: impl FnOnce([u32; ALL]) -> Result<[u32; ALL], OpenError>,
) -> Result<(Probe, Areas), OpenError> {
    let strange = |what: String| OpenError::Strange { function: function.address.to_string(), what };
    let (probe, areas) = probe(read)?;
    if probe.capabilities & reg::CAP_V2 == 0 || probe.protocol == reg::PROTOCOL_V1 {
        return Err(other_version(function, probe.protocol, probe.capabilities));
    }
    // A base so far below the limits of 64 bits that nothing overflows.
    if areas.channels == 0 || areas.channels > reg::MAX_CHANNELS || areas.base > 1 << 52 {
        return Err(strange(format!("{} channels at {:#x}", areas.channels, areas.base)));
    }
    if areas.stride < area::AREA_BYTES
        || !areas.stride.is_multiple_of(4096)
        || !areas.base.is_multiple_of(4096)
    {
        return Err(strange(format!("channel areas of {:#x} bytes at {:#x}", areas.stride, areas.base)));
    }
    if areas.end() > u64::from(probe.window_mib) << 20 {
        return Err(strange(format!("channel areas to {:#x} in {} MiB", areas.end(), probe.window_mib)));
    }
    Ok((probe, areas))
}

fn other_version(function: &PciFunction, protocol: u32, capabilities: u32) -> OpenError {
    let function = function.address.to_string();
    if capabilities & reg::CAP_CUDA != 0 {
        OpenError::Version1 { function, capabilities }
    } else {
        OpenError::Strange {
            function,
            what: format!("protocol {protocol:#x}, capabilities {capabilities:#x}"),
        }
    }
}
