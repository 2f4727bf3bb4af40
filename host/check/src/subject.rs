//! What is checked, and what links find out for later ones.

use std::path::PathBuf;
use std::time::Duration;

use crate::nvidia::answers::HostGpu;
use crate::root::Root;

/// Time limit for QEMU to print its version or its devices.
pub const PROGRAM_LIMIT: Duration = Duration::from_secs(15);

/// The host and the configuration that are checked.
#[derive(Clone, Debug)]
pub struct Subject {
    /// Whether a GPU is to carry out the calls. Else links of NVIDIA's are left out.
    pub cuda: bool,
    /// UUID of the GPU or MIG instance.
    pub gpu: Option<[u8; 16]>,
    /// Device memory that guests are to get, in bytes.
    pub memory: u64,
    /// Path of the vfio-user socket. Without one the links of VMs are left out.
    pub socket: Option<PathBuf>,
    /// A group whose users are to connect to the socket.
    pub group: Option<u32>,
    /// QEMU, by path or by name.
    pub qemu: PathBuf,
    /// libcuda, by path or by name.
    pub libcuda: PathBuf,
    /// libnvidia-ml, by path or by name.
    pub libnvidia_ml: PathBuf,
    /// cuBLAS, by path or by name: the first that loads is taken.
    pub libcublas: Vec<PathBuf>,
    /// Time limit for an answer of NVIDIA's libraries. On a host with many GPUs and without persistence mode,
    /// the driver's first start takes seconds.
    pub library_limit: Duration,
    /// The program that asks NVIDIA's libraries in a process of its own, and its first arguments.
    pub asker: Vec<PathBuf>,
    /// Directory that stands for `/` when facts are read from `/proc` and `/sys`.
    pub root: Root,
}

/// Facts that earlier links found for later ones.
#[derive(Clone, Debug, Default)]
pub struct HostFacts {
    /// The driver's version, such as `580.65.06`.
    pub driver: Option<String>,
    /// `cuDriverGetVersion`
    pub cuda: Option<u32>,
    /// The host's GPUs.
    pub gpus: Vec<HostGpu>,
    /// The GPU that the VM gets, or the one that its MIG instance is of.
    pub gpu: Option<HostGpu>,
    /// The MIG instance that the VM gets.
    pub instance: Option<String>,
    /// Version that QEMU prints.
    pub qemu: Option<String>,
}

/// Returns whether two spellings of a UUID are of one: prefixes, hyphens and case do not matter.
pub fn same_uuid(spelled: &str, bytes: &[u8; 16]) -> bool {
    let digits = spelled.strip_prefix("GPU-").or(spelled.strip_prefix("MIG-")).unwrap_or(spelled);
    let digits: String = digits.chars().filter(|&letter| letter != '-').collect();
    digits.eq_ignore_ascii_case(&format!("{:032x}", u128::from_be_bytes(*bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_are_compared_by_their_digits() {
        let bytes = std::array::from_fn(|index| 0x11 * index as u8);
        for spelled in
            ["GPU-00112233-4455-6677-8899-aabbccddeeff", "MIG-00112233-4455-6677-8899-AABBCCDDEEFF"]
        {
            assert!(same_uuid(spelled, &bytes), "{spelled}");
        }
        assert!(!same_uuid("GPU-00112233-4455-6677-8899-aabbccddeef0", &bytes) && !same_uuid("", &bytes));
    }
}
