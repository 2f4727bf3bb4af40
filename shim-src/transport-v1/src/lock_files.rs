//! The files by which the processes of one virtual machine share a device of version 1.

use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use vgpu_transport::PciFunction;
use vgpu_wire::pci::V2_BAR0_BYTES;

use crate::shared_file::share_with_all;

/// The files of a device of version 1. On a real bus they have the names that old guests use, so that old and
/// new processes exclude each other. A simulated bus has them in its own directory.
#[derive(Clone, Debug)]
pub(crate) struct LockFiles {
    /// Locked (`flock`) during a call.
    pub(crate) lock: PathBuf,
    /// The owners of tokens ([`crate::owners_file`]). Only new guests use it.
    pub(crate) owners: PathBuf,
    /// Process ids of old guests, one in each line.
    pub(crate) old_guest_pids: PathBuf,
    /// The file that is the guest's memory; `None` if the bus is real.
    pub(crate) memory: Option<PathBuf>,
}

impl LockFiles {
    /// Returns the files of the function whose directory is `dir`.
    pub(crate) fn new(dir: &Path, simulated: bool) -> Self {
        // DIR/bus/pci/devices/ADDRESS
        let bus = dir.ancestors().nth(4).filter(|_| simulated);
        let name = dir.file_name().unwrap_or_default().to_string_lossy();
        let at = |folder: &str, file: String| bus.unwrap_or(Path::new(folder)).join(file);
        Self {
            lock: at("/var/tmp", "vgpu_transport.lock".to_owned()),
            owners: at("/var/tmp", format!("vgpu_transport.{name}.owners")),
            old_guest_pids: at("/tmp", "vgpu_cuda_owner_pids".to_owned()),
            memory: bus.map(|bus| bus.join("ram")),
        }
    }

    /// Returns the files of a function, or `None` if the function does not have version 1.
    fn find(function: &PciFunction) -> Option<Self> {
        if function.bars[0].bytes >= V2_BAR0_BYTES {
            return None;
        }
        let simulated = std::fs::metadata(function.dir.join("resource0"))
            .is_ok_and(|metadata| metadata.file_type().is_socket());
        Some(Self::new(&function.dir, simulated))
    }
}

/// Returns the paths of the files by which processes share a function, whether they exist or not. The first
/// one is the lock file. Empty unless the function has version 1.
pub fn lock_files(function: &PciFunction) -> Vec<PathBuf> {
    LockFiles::find(function).map_or_else(Vec::new, |files| vec![files.lock, files.owners])
}

/// Lets every user lock the lock file of a function, if a guest of another make has left it to this user
/// alone. Returns whether the mode was changed.
///
/// # Errors
/// Returns the path of the lock file, and why its mode cannot be read or set: it may not be a regular file
/// with one name.
pub fn share_lock_file(function: &PciFunction) -> Result<bool, (PathBuf, io::Error)> {
    let Some(LockFiles { lock, .. }) = LockFiles::find(function) else { return Ok(false) };
    share_with_all(&lock).map_err(|error| (lock, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_real_bus_has_the_names_of_old_guests() {
        let real = LockFiles::new(Path::new("/sys/bus/pci/devices/0000:00:05.0"), false);
        assert_eq!(real.lock, Path::new("/var/tmp/vgpu_transport.lock"));
        assert_eq!(real.owners, Path::new("/var/tmp/vgpu_transport.0000:00:05.0.owners"));
        assert_eq!(real.old_guest_pids, Path::new("/tmp/vgpu_cuda_owner_pids"));
        assert_eq!(real.memory, None);
        let sim = LockFiles::new(Path::new("/x/y/bus/pci/devices/0000:00:05.0"), true);
        assert_eq!(sim.lock, Path::new("/x/y/vgpu_transport.lock"));
        assert_eq!(sim.memory.as_deref(), Some(Path::new("/x/y/ram")));
    }
}
