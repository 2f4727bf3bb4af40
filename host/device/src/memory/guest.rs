//! Guest memory as the device reaches it: by guest-physical addresses, copied from and to, never referred to.

use std::fmt::Debug;
use std::fs::File;
use std::path::Path;

use crate::memory::window::{Window, WindowError};

/// The memory of the guest that a device is in.
pub trait GuestMemory: Debug + Send + Sync {
    /// Makes `bytes` from guest-physical `address` on ready to be read and written; false: not all of them
    /// are memory of the guest's.
    fn map(&self, address: u64, bytes: u64) -> bool;

    /// Fills `into` from guest-physical `address` on; false: not all of it is memory.
    fn read(&self, address: u64, into: &mut [u8]) -> bool;

    /// Writes `from` to guest-physical `address` on; false: not all of that is memory.
    fn write(&self, address: u64, from: &[u8]) -> bool;

    /// The file that holds `bytes` from guest-physical `address` on, which may be written, and where in it
    /// they are: for a device that maps them for as long as a guest lets it. `None`: not all of them are
    /// memory of the guest's, or not in one piece.
    fn file(&self, address: u64, bytes: u64) -> Option<(File, u64)>;
}

/// Guest memory that is a file: the offset is the guest-physical address. Guests map the same file.
#[derive(Debug)]
pub struct Ram(Window);

impl Ram {
    /// Creates the file at `path`, which must not exist, `bytes` long without occupying memory, and maps it
    /// shared.
    pub fn create(path: &Path, bytes: u64) -> Result<Self, WindowError> {
        Window::create(path, bytes).map(Self)
    }

    /// Size in bytes.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.0.bytes()
    }
}

impl GuestMemory for Ram {
    fn map(&self, address: u64, bytes: u64) -> bool {
        // Storage first: who touches shared memory that has none is killed.
        self.0.slice(address, bytes).is_some() && self.0.reserve(address, bytes)
    }

    fn read(&self, address: u64, into: &mut [u8]) -> bool {
        let slice = self.0.slice(address, into.len() as u64);
        slice.map(|slice| slice.copy_to(into)).is_some()
    }

    fn write(&self, address: u64, from: &[u8]) -> bool {
        let slice = self.0.slice(address, from.len() as u64);
        slice.map(|slice| slice.copy_from(from)).is_some()
    }

    fn file(&self, address: u64, bytes: u64) -> Option<(File, u64)> {
        let file = self.map(address, bytes).then(|| self.0.file().try_clone_to_owned().ok());
        Some((File::from(file??), address))
    }
}
