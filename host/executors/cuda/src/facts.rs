//! Facts that the device announces: those of the real GPU, without features that a guest cannot have. Reading
//! them needs no context.

use std::ffi::c_int;

use vgpu_abi::nvml::module_version;
use vgpu_wire::facts::{DeviceFacts, NOT_IN_A_GUEST, exec};

use crate::driver::device::{DriverDevice, uuid_text};
use crate::driver::error::LoadError;
use crate::driver::nvml;
use crate::driver::range;
use crate::options::CudaOptions;

/// Numbers of the attributes `CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR` and `..._MINOR`.
const COMPUTE_CAPABILITY: [c_int; 2] = [75, 76];
/// Number of the attribute `CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED`.
const VIRTUAL_MEMORY_MANAGEMENT: c_int = 102;
/// Number of the attribute `CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING`.
const UNIFIED_ADDRESSING: c_int = 41;
/// Numbers of the attributes `CU_DEVICE_ATTRIBUTE_NUMA_ID` and `..._HOST_NUMA_ID`. Their value -1 means that
/// there is no node.
const NO_NODE: [usize; 2] = [131, 134];
/// Major number of the compute capability from which on kernels overlap by programmatic dependent launch.
const OVERLAP: u32 = 9;

/// First attribute that CUDA 13 does not define. Neither it nor later ones are announced.
const UNKNOWN: usize = 162;

/// Reads the facts of a GPU.
pub(crate) fn facts(device: &DriverDevice, options: &CudaOptions) -> Result<Box<DeviceFacts>, LoadError> {
    let uuid = device.uuid()?;
    let lacks = |lacks| LoadError::Lacks { uuid: uuid_text(&uuid), lacks };
    for (id, what) in [
        (VIRTUAL_MEMORY_MANAGEMENT, "it has no virtual memory management"),
        (UNIFIED_ADDRESSING, "its addresses are not those of its host's processes"),
    ] {
        if device.attribute(id).is_none_or(|has| has == 0) {
            return Err(lacks(what));
        }
    }
    let mut attributes = [0; 192];
    for (id, value) in attributes.iter_mut().enumerate().take(UNKNOWN).skip(1) {
        *value = device.attribute(id as c_int).unwrap_or(0);
    }
    for absent in NOT_IN_A_GUEST {
        for id in absent.all() {
            attributes[id] = 0;
        }
    }
    for id in NO_NODE {
        attributes[id] = -1;
    }
    let [cc_major, cc_minor] =
        COMPUTE_CAPABILITY.map(|id| device.attribute(id).and_then(|n| u32::try_from(n).ok()).unwrap_or(0));
    let edges = if cc_major >= OVERLAP && device.has_edge_data() { exec::EDGES } else { 0 };
    let mut facts = Box::new(DeviceFacts {
        name: device.name()?,
        driver_text: driver_text(options),
        uuid,
        total_bytes: total(device.total_bytes()?, options)?,
        driver_version: device.driver_version()?,
        cc_major,
        cc_minor,
        granularity: u32::try_from(range::granularity(device)?).unwrap_or(u32::MAX),
        abilities: exec::KERNELS | exec::CUBIN | exec::PTX | exec::UNNAMED | exec::HOLDS | edges,
        reserved: [0; 13],
        attributes,
    });
    // Allocations have these addresses. A module's variables are where the driver puts them, and a guest
    // reserves room for each.
    facts.set_addresses(options.range);
    Ok(facts)
}

/// Returns the device memory that the VM gets of a GPU with `bytes`: at most the promise in `options`.
fn total(bytes: u64, options: &CudaOptions) -> Result<u64, LoadError> {
    let overhead = options.context_bytes.saturating_mul(u64::from(options.contexts));
    match bytes.checked_sub(overhead) {
        Some(rest) if rest > 0 => Ok(options.memory.map_or(rest, |memory| memory.min(rest))),
        _ => Err(LoadError::Memory { total: bytes, overhead, workers: options.contexts }),
    }
}

/// Returns the driver's version as text, padded with zeros. The last byte is always zero.
fn driver_text(options: &CudaOptions) -> [u8; 80] {
    let given = options.driver_text.clone().or_else(|| module_version(&options.root));
    let text = given.or_else(|| nvml::driver_version(options.libnvidia_ml.as_deref())).unwrap_or_default();
    let text = text.trim().as_bytes();
    let mut bytes = [0; 80];
    let length = text.len().min(bytes.len() - 1);
    bytes[..length].copy_from_slice(&text[..length]);
    bytes
}

#[cfg(test)]
mod tests {
    use vgpu_device::Addresses;
    use vgpu_wire::facts::AbsentAttributes;

    use super::*;

    #[test]
    fn contexts_come_out_of_the_gpus_memory_and_guests_get_the_rest() {
        let options =
            CudaOptions { context_bytes: 10, contexts: 3, ..CudaOptions::new(Addresses::next_in_process()) };
        let of = |memory, bytes| total(bytes, &CudaOptions { memory, ..options.clone() }).ok();
        assert_eq!((of(None, 100), of(Some(50), 100), of(Some(80), 100)), (Some(70), Some(50), Some(70)));
        assert_eq!((of(None, 30), of(Some(1), 29)), (None, None));
    }

    #[test]
    fn an_attribute_has_one_reason_to_be_missing() {
        let mut ids: Vec<usize> = NOT_IN_A_GUEST.iter().flat_map(AbsentAttributes::all).collect();
        let all = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), all);
        assert!(ids.iter().all(|id| (1..UNKNOWN).contains(id)));
    }
}
