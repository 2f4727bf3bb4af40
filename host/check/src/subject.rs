//! Subject of a check, and facts that links find out for later ones.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::nvidia::answers::HostGpu;
use crate::root::Root;

/// Time limit for QEMU to print its version or its devices.
pub const PROGRAM_LIMIT: Duration = Duration::from_secs(15);

/// The host and the configuration that are checked.
#[derive(Clone, Debug)]
pub struct Subject {
    /// Whether a GPU carries out the calls. Without one, the links of NVIDIA are skipped.
    pub cuda: bool,
    /// UUID of the GPU or MIG instance, if one was chosen.
    pub gpu: Option<[u8; 16]>,
    /// Device memory that guests should get, in bytes.
    pub memory: u64,
    /// Path of the vfio-user socket. Without one, the links of VMs are skipped.
    pub socket: Option<PathBuf>,
    /// What became of the VM when the device's process died, in a sentence, if it did.
    pub restart: Option<String>,
    /// Whether a VM's QEMU connects to the device. Otherwise the link of QEMU is skipped.
    pub has_qemu: bool,
    /// Tells whether the GPU has the memory beside what other VMs have been promised.
    pub room: Room,
    /// Id of the group whose users should be able to connect to the socket.
    pub group: Option<u32>,
    /// Path or name of the QEMU program.
    pub qemu: PathBuf,
    /// Path or name of libcuda.
    pub libcuda: PathBuf,
    /// Path or name of libnvidia-ml.
    pub libnvidia_ml: PathBuf,
    /// Paths or names of cuBLAS, of which the first that loads is used.
    pub libcublas: Vec<PathBuf>,
    /// Time limit for a query of NVIDIA's libraries. On a host with many GPUs and without persistence mode,
    /// the driver's first start takes seconds.
    pub library_limit: Duration,
    /// Program, with its first arguments, that queries NVIDIA's libraries in a process of its own.
    pub asker: Vec<PathBuf>,
    /// Directory that stands for `/` when facts are read from `/proc` and `/sys`.
    pub root: Root,
}

/// What is asked for the memory that a GPU has left: by the UUID of the GPU or of the MIG instance, and its
/// memory in bytes. The answer is why a VM cannot have its part, or `None` if it can.
type AskRoom = dyn Fn(&str, u64) -> Result<Option<String>, String> + Send + Sync;

/// Tells whether a GPU has room for the VM.
#[derive(Clone)]
pub struct Room(Arc<AskRoom>);

impl Room {
    /// Makes a value that asks `ask`.
    pub fn new(ask: impl Fn(&str, u64) -> Result<Option<String>, String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(ask))
    }

    pub(crate) fn ask(&self, uuid: &str, bytes: u64) -> Result<Option<String>, String> {
        (self.0)(uuid, bytes)
    }
}

impl fmt::Debug for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Room").finish_non_exhaustive()
    }
}

/// Facts that earlier links have found for later ones.
#[derive(Clone, Debug, Default)]
pub struct HostFacts {
    /// Version of the driver, such as `580.65.06`.
    pub driver: Option<String>,
    /// Version from `cuDriverGetVersion`.
    pub cuda: Option<u32>,
    /// The host's GPUs.
    pub gpus: Vec<HostGpu>,
    /// GPU that the VM gets, or the GPU of its MIG instance.
    pub gpu: Option<HostGpu>,
    /// UUID of the MIG instance that the VM gets, if it gets one.
    pub instance: Option<String>,
    /// Memory of that instance or GPU in bytes, if the driver tells it.
    pub memory: Option<u64>,
    /// Version that QEMU prints.
    pub qemu: Option<String>,
}

/// Returns whether a spelling of a UUID means these bytes. Prefixes, hyphens and case do not matter.
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
