//! The file `ram`: memory of the guest whose processes all users of the bus are. The offset is the
//! guest-physical address.

use std::path::PathBuf;
use std::sync::Arc;

use vgpu_wire::pci::PciAddress;

use super::error::SimError;
use super::folder::Bus;
use crate::memory::guest::Ram;

/// The guest's memory and its file, which goes with it.
#[derive(Debug)]
pub(super) struct RamFile {
    pub(super) ram: Arc<Ram>,
    path: PathBuf,
}

impl RamFile {
    /// Creates the file and maps it.
    pub(super) fn create(bus: &Bus, bytes: u64, address: PciAddress) -> Result<Self, SimError> {
        let path = bus.folder().join("ram");
        let ram = Ram::create(&path, bytes).map_err(|source| SimError::Window { address, source })?;
        Ok(Self { ram: Arc::new(ram), path })
    }
}

impl Drop for RamFile {
    fn drop(&mut self) {
        // It is gone already, or nobody can do anything about it.
        let _ = std::fs::remove_file(&self.path);
    }
}
