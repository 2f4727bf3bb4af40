//! What the device says of itself: the real GPU's facts, less what a guest cannot have. Taken without a
//! context.

use std::ffi::c_int;
use std::ops::RangeInclusive;

use vgpu_wire::facts::{DeviceFacts, exec};

use crate::driver::device::{Device, uuid_text};
use crate::driver::error::LoadError;
use crate::driver::range;
use crate::options::CudaOptions;

/// `CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR`, `..._MINOR`
const COMPUTE_CAPABILITY: [c_int; 2] = [75, 76];
/// `CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED`
const VIRTUAL_MEMORY_MANAGEMENT: c_int = 102;
/// `CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING`
const UNIFIED_ADDRESSING: c_int = 41;
/// `CU_DEVICE_ATTRIBUTE_NUMA_ID`, `..._HOST_NUMA_ID`: -1 is none.
const NO_NODE: [usize; 2] = [131, 134];
/// Where the kernel module says its version.
const MODULE_VERSION: &str = "/sys/module/nvidia/version";

/// Attributes that read 0 in a guest whatever the GPU can do, with the reason. Ids as in
/// `CUdevice_attribute`. What is not named is the GPU's.
const NOT_IN_A_GUEST: &[(&str, &[RangeInclusive<usize>])] = &[
    (
        "a display of the host's does not limit the guest's kernels, and its modes are its own",
        &[17..=17, 20..=20],
    ),
    (
        "kernels do not reach the guest's memory: it is another process's, at other addresses",
        &[19..=19, 91..=91],
    ),
    (
        "textures, surfaces and arrays are not in the contract",
        &[21..=29, 42..=49, 52..=74, 77..=77, 107..=107, 112..=112, 121..=121, 127..=127],
    ),
    ("the host's topology is not the guest's", &[33..=34, 50..=50, 130..=131, 134..=134, 139..=140]),
    (
        "memory that host and device share page by page needs one address space",
        &[83..=83, 88..=89, 100..=101],
    ),
    ("the guest's devices are each alone: no launch spans them", &[84..=85, 96..=96, 132..=132]),
    ("native atomics of host memory need kernels that reach it", &[86..=86]),
    ("words that a guest's streams store or wait for are not in the contract", &[92..=94, 122..=123]),
    (
        "other devices of the guest's have no way to the GPU's memory",
        &[98..=98, 110..=110, 116..=118, 124..=124],
    ),
    (
        "pages of the guest's are its kernel's to register: the guest says itself whether it can",
        &[99..=99, 113..=113],
    ),
    (
        "other processes and APIs of the guest's cannot open handles of the host",
        &[103..=105, 114..=114, 119..=119, 125..=125, 128..=128, 135..=135, 138..=138, 143..=143],
    ),
    ("that the host runs MPS is not the guest's business", &[133..=133]),
    (
        "what came with CUDA 12 and 13 beside these the contract does not carry",
        &[129..=129, 136..=137, 141..=142, 144..=146, 151..=156, 158..=159, 161..=161],
    ),
];
/// The first id of which CUDA 13 does not say what it means: not taken over.
const UNKNOWN: usize = 162;

/// The facts of a GPU.
pub(crate) fn facts(device: &Device, options: &CudaOptions) -> Result<Box<DeviceFacts>, LoadError> {
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
    for (_why, ids) in NOT_IN_A_GUEST {
        for id in ids.iter().cloned().flatten() {
            attributes[id] = 0;
        }
    }
    for id in NO_NODE {
        attributes[id] = -1;
    }
    let holds = if device.has_stream_memory_operations() { exec::HOLDS } else { 0 };
    let [cc_major, cc_minor] =
        COMPUTE_CAPABILITY.map(|id| device.attribute(id).and_then(|n| u32::try_from(n).ok()).unwrap_or(0));
    let mut facts = Box::new(DeviceFacts {
        name: device.name()?,
        driver_text: driver_text(options),
        uuid,
        total_bytes: total(device.total_bytes()?, options)?,
        driver_version: device.driver_version()?,
        cc_major,
        cc_minor,
        granularity: u32::try_from(range::granularity(device)?).unwrap_or(u32::MAX),
        abilities: exec::KERNELS | exec::CUBIN | exec::PTX | exec::UNNAMED | holds,
        reserved: [0; 13],
        attributes,
    });
    // Allocations lie there. A module's variables lie where the driver puts them: a guest makes room for
    // each.
    facts.set_addresses(options.range);
    Ok(facts)
}

/// Bytes that guests get, of a GPU with `bytes`.
fn total(bytes: u64, options: &CudaOptions) -> Result<u64, LoadError> {
    let overhead = options.context_bytes.saturating_mul(u64::from(options.contexts));
    match bytes.checked_sub(overhead) {
        Some(rest) if rest > 0 => Ok(options.memory.map_or(rest, |memory| memory.min(rest))),
        _ => Err(LoadError::Memory { total: bytes, overhead, workers: options.contexts }),
    }
}

/// The driver's version as text, with zeros behind it, the last byte zero.
fn driver_text(options: &CudaOptions) -> [u8; 80] {
    let given = options.driver_text.clone();
    let text = given.or_else(|| std::fs::read_to_string(MODULE_VERSION).ok()).unwrap_or_default();
    let text = text.trim().as_bytes();
    let mut bytes = [0; 80];
    let length = text.len().min(bytes.len() - 1);
    bytes[..length].copy_from_slice(&text[..length]);
    bytes
}

#[cfg(test)]
mod tests {
    use vgpu_device::Addresses;

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
        let mut ids: Vec<usize> =
            NOT_IN_A_GUEST.iter().flat_map(|(_, ids)| ids.iter().cloned().flatten()).collect();
        let all = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), all);
        assert!(ids.iter().all(|id| (1..UNKNOWN).contains(id)));
    }
}
