//! The numbers by which NVIDIA's tools call the GPUs of this host, for joins with their metrics.

use std::fs;
use std::path::{Path, PathBuf};

use vgpu_share::GpuUuid;

/// Directory in which the kernel module has one for each GPU, by its PCI address.
const GPUS: &str = "/proc/driver/nvidia/gpus";

/// Returns the number of a GPU, which is its place in the order of PCI addresses. It is `None` if the module
/// does not have the GPU, as where the GPU is a stand-in.
pub(super) fn number(uuid: GpuUuid) -> Option<usize> {
    number_in(Path::new(GPUS), uuid)
}

fn number_in(folder: &Path, uuid: GpuUuid) -> Option<usize> {
    let mut gpus: Vec<PathBuf> = fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path()).collect();
    gpus.sort();
    let uuid = uuid.to_string();
    gpus.iter().position(|gpu| {
        let text = fs::read_to_string(gpu.join("information")).unwrap_or_default();
        let named = text.lines().find_map(|line| line.strip_prefix("GPU UUID:"));
        named.is_some_and(|named| named.trim() == uuid)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpus_number_is_its_place_by_pci_address() {
        let folder = tempfile::tempdir().unwrap();
        let uuid = |digit| format!("GPU-0000000{digit}-0000-0000-0000-000000000000");
        for (address, digit) in [("0000:c1:00.0", 1), ("0000:01:00.0", 2), ("0000:41:00.0", 3)] {
            let gpu = folder.path().join(address);
            fs::create_dir(&gpu).unwrap();
            let text = format!("Model: \t\t NVIDIA H100\nIRQ:   \t\t 16\nGPU UUID: \t {}\n", uuid(digit));
            fs::write(gpu.join("information"), text).unwrap();
        }
        let number = |digit| number_in(folder.path(), uuid(digit).parse().unwrap());
        assert_eq!([1, 2, 3, 4].map(number), [Some(2), Some(0), Some(1), None]);
        assert_eq!(number_in(&folder.path().join("absent"), uuid(1).parse().unwrap()), None);
    }
}
