//! Exports of the manual's chapter "Device Management". None of them needs or creates a context.

use std::ffi::{c_char, c_int};

use vgpu_abi::driver::arg::Out;
use vgpu_abi::driver::attribute as id;
use vgpu_abi::driver::{CUdevice, CUuuid};

use crate::code::{MAX_THREADS, SHARED, SHARED_OPTIN};
use crate::machine::RecordingMachine;
use crate::memory::TOTAL_BYTES;
use crate::rule::{CallResult, Rule};

/// First number that is no `CUdevice_attribute`.
const ATTRIBUTES: c_int = 192;

/// Product name of the device.
const NAME: &str = "Recording GPU";
/// UUID of the device.
const UUID: CUuuid = 0x7ec0_7d1a_0000_4000_8000_0000_0000_00a0_u128.to_be_bytes();
/// Compute capability of the device.
pub const COMPUTE_CAPABILITY: [c_int; 2] = [9, 0];

/// Refuses every ordinal but 0, because there is one device.
pub fn check_device(ordinal: CUdevice) -> CallResult {
    if ordinal == 0 { Ok(()) } else { Err(Rule::Device.into()) }
}

/// Returns the value of a device attribute.
fn attribute(machine: &RecordingMachine, attribute: c_int) -> CallResult<c_int> {
    if !(1..ATTRIBUTES).contains(&attribute) {
        return Err(Rule::Argument.into());
    }
    let options = &machine.options;
    Ok(match attribute {
        id::MAX_THREADS_PER_BLOCK => MAX_THREADS.cast_signed(),
        // The limits are those of blocks in x and y, of blocks in z, of grids in x, and of grids in y and z.
        2 | 3 => 1024,
        4 => 64,
        5 => c_int::MAX,
        6 | 7 => 65_535,
        id::MAX_SHARED_MEMORY_PER_BLOCK => SHARED,
        id::MAX_SHARED_MEMORY_PER_BLOCK_OPTIN => SHARED_OPTIN,
        id::TOTAL_CONSTANT_MEMORY | id::MAX_REGISTERS_PER_BLOCK => 64 << 10,
        id::WARP_SIZE => 32,
        id::MAX_PITCH => c_int::MAX,
        id::CLOCK_RATE => 1_755_000,
        id::TEXTURE_ALIGNMENT => 512,
        id::MULTIPROCESSOR_COUNT => 114,
        id::MAX_THREADS_PER_MULTIPROCESSOR => 2048,
        id::COMPUTE_CAPABILITY_MAJOR => COMPUTE_CAPABILITY[0],
        id::COMPUTE_CAPABILITY_MINOR => COMPUTE_CAPABILITY[1],
        id::PCI_BUS_ID
        | id::CAN_MAP_HOST_MEMORY
        | id::UNIFIED_ADDRESSING
        | id::STREAM_PRIORITIES_SUPPORTED
        | id::COOPERATIVE_LAUNCH
        | id::VIRTUAL_MEMORY_MANAGEMENT
        | id::CLUSTER_LAUNCH => 1,
        id::CAN_USE_64_BIT_STREAM_MEM_OPS | id::CAN_USE_STREAM_WAIT_VALUE_NOR => {
            c_int::from(options.memory_operations)
        }
        id::HOST_REGISTER_SUPPORTED => c_int::from(options.host_register),
        id::CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM => c_int::from(options.host_pointers),
        _ => 0,
    })
}

calls! {
    /// Implements `cuDeviceGetCount`.
    pub fn cuDeviceGetCount(count: Out<c_int>) |_call| { Ok(count.set(1)?) }

    /// Implements `cuDeviceGet`.
    pub fn cuDeviceGet(out: Out<CUdevice>, ordinal: c_int) |_call| {
        check_device(ordinal)?;
        Ok(out.set(ordinal)?)
    }

    /// Implements `cuDeviceGetName`.
    pub fn cuDeviceGetName(text: Out<c_char>, bytes: c_int, ordinal: CUdevice) |_call| {
        check_device(ordinal)?;
        let bytes = usize::try_from(bytes).map_err(|_| Rule::Argument)?;
        Ok(text.set_text(NAME.as_bytes(), bytes)?)
    }

    /// Implements `cuDeviceGetUuid_v2`.
    pub fn cuDeviceGetUuid_v2(uuid: Out<CUuuid>, ordinal: CUdevice) |_call| {
        check_device(ordinal)?;
        Ok(uuid.set(UUID)?)
    }

    /// Implements `cuDeviceTotalMem_v2`.
    pub fn cuDeviceTotalMem_v2(bytes: Out<usize>, ordinal: CUdevice) |_call| {
        check_device(ordinal)?;
        Ok(bytes.set(TOTAL_BYTES as usize)?)
    }

    /// Implements `cuDeviceGetAttribute`.
    pub fn cuDeviceGetAttribute(value: Out<c_int>, id: c_int, ordinal: CUdevice) |call| {
        check_device(ordinal)?;
        Ok(value.set(attribute(call, id)?)?)
    }
}
