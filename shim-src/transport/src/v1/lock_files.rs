//! The files by which the processes of one virtual machine share a device of version 1.

use std::path::{Path, PathBuf};

/// The files of a device of version 1. On a real bus they have the names that old guests use, so that old and
/// new processes keep out of each other's way; a simulated bus has them in its own directory.
#[derive(Clone, Debug)]
pub(crate) struct LockFiles {
    /// Locked (`flock`) while a call is under way.
    pub(crate) lock: PathBuf,
    /// Which processes have which tokens ([`super::owners_file`]). Only new guests have it.
    pub(crate) owners: PathBuf,
    /// Process ids of old guests, one in each line.
    pub(crate) old: PathBuf,
    /// Guest memory as a file, on a simulated bus.
    pub(crate) memory: Option<PathBuf>,
}

impl LockFiles {
    /// The files of the function whose directory is `dir`.
    pub(crate) fn of(dir: &Path, simulated: bool) -> Self {
        // DIR/bus/pci/devices/ADDRESS
        let bus = dir.ancestors().nth(4).filter(|_| simulated);
        let name = dir.file_name().unwrap_or_default().to_string_lossy();
        let at = |folder: &str, file: String| bus.unwrap_or(Path::new(folder)).join(file);
        Self {
            lock: at("/var/tmp", "vgpu_transport.lock".to_owned()),
            owners: at("/var/tmp", format!("vgpu_transport.{name}.owners")),
            old: at("/tmp", "vgpu_cuda_owner_pids".to_owned()),
            memory: bus.map(|bus| bus.join("ram")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_real_bus_has_the_names_of_old_guests() {
        let real = LockFiles::of(Path::new("/sys/bus/pci/devices/0000:00:05.0"), false);
        assert_eq!(real.lock, Path::new("/var/tmp/vgpu_transport.lock"));
        assert_eq!(real.owners, Path::new("/var/tmp/vgpu_transport.0000:00:05.0.owners"));
        assert_eq!(real.old, Path::new("/tmp/vgpu_cuda_owner_pids"));
        assert_eq!(real.memory, None);
        let sim = LockFiles::of(Path::new("/x/y/bus/pci/devices/0000:00:05.0"), true);
        assert_eq!(sim.lock, Path::new("/x/y/vgpu_transport.lock"));
        assert_eq!(sim.memory.as_deref(), Some(Path::new("/x/y/ram")));
    }
}
