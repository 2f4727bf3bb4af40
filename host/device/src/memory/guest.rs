//! Guest memory as the device accesses it: by guest-physical addresses, copied from and to, never referenced.

use std::fmt::Debug;
use std::fs::File;
use std::path::Path;

use crate::memory::window::{Window, WindowError};

/// Memory of the guest that a device belongs to.
pub trait GuestMemory: Debug + Send + Sync {
    /// Prepares `bytes` from guest-physical `address` on for access. Returns false if not all of them are
    /// guest memory.
    fn map(&self, address: u64, bytes: u64) -> bool;

    /// Fills `into` from guest-physical `address` on. Returns false if not all of it is guest memory.
    fn read(&self, address: u64, into: &mut [u8]) -> bool;

    /// Writes `from` to guest-physical `address` on. Returns false if not all of it is guest memory.
    fn write(&self, address: u64, from: &[u8]) -> bool;

    /// Returns the file that holds `bytes` from guest-physical `address` on, and the offset in it. A device
    /// maps the file, and may write to it, as long as the guest permits. Returns `None` if not all of the
    /// bytes are guest memory, or they are not contiguous in a file.
    fn file(&self, address: u64, bytes: u64) -> Option<(File, u64)>;
}

/// Guest memory in one file, in which the offset is the guest-physical address. Guests map the same file.
#[derive(Debug)]
pub struct Ram(Window);

impl Ram {
    /// Creates the file at `path`, which must not exist, with a length of `bytes`, and maps it shared. Memory
    /// is allocated when it is first used.
    pub fn create(path: &Path, bytes: u64) -> Result<Self, WindowError> {
        Window::create(path, bytes).map(Self)
    }

    /// Returns the size in bytes.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.0.bytes()
    }
}

impl GuestMemory for Ram {
    fn map(&self, address: u64, bytes: u64) -> bool {
        // Storage is reserved first, because an access to shared memory without storage kills the process.
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
