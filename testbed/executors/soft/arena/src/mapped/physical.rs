//! Physical memory: an object that can be mapped at several addresses.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

/// Memory without an address, zero at first. Clones are the same memory. It goes back to the system when the last clone
/// and the last mapping are gone.
#[derive(Clone, Debug)]
pub struct Physical {
    file: Arc<OwnedFd>,
    bytes: u64,
}

impl Physical {
    /// Memory of `bytes`; it occupies the host as far as it is written.
    pub fn new(bytes: u64) -> io::Result<Self> {
        let file = memfd_create("vgpu-physical", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, bytes)?;
        // Nobody can shorten it: an access to a mapping beyond the end of its file would end this process.
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok(Self { file: Arc::new(file), bytes })
    }

    /// Its size.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
