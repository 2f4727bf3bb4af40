//! The file `ram`: memory of the guest whose processes are the users of the bus. The offset is the
//! guest-physical address.

use std::path::PathBuf;
use std::sync::Arc;

use vgpu_wire::pci::PciAddress;

use super::directory::BusDirectory;
use super::error::SimError;
use crate::memory::guest::Ram;

/// Guest memory and its file, which is removed when this is dropped.
#[derive(Debug)]
pub(super) struct RamFile {
    pub(super) ram: Arc<Ram>,
    path: PathBuf,
}

impl RamFile {
    /// Creates the file and maps it.
    pub(super) fn create(bus: &BusDirectory, bytes: u64, address: PciAddress) -> Result<Self, SimError> {
        let path = bus.folder().join("ram");
        let ram = Ram::create(&path, bytes).map_err(|source| SimError::Window { address, source })?;
        Ok(Self { ram: Arc::new(ram), path })
    }
}

impl Drop for RamFile {
    fn drop(&mut self) {
        // The file is gone already, or cannot be removed.
        let _ = std::fs::remove_file(&self.path);
    }
}
