//! Physical memory: pieces of a file in memory that can be mapped at several addresses. A session has one
//! file, however many pieces it makes: a process may have few open files.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{
    FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, fstat, ftruncate, memfd_create,
};
use rustix::io::retry_on_intr;

use crate::page::PAGE;

/// What `st_blocks` counts.
const BLOCK: u64 = 512;

/// Where pieces of physical memory come from. Clones are the same pool.
#[derive(Clone, Debug)]
pub struct PhysicalPool(Arc<File>);

#[derive(Debug)]
struct File {
    file: OwnedFd,
    /// The end of the newest piece. Offsets are not used again: there are 2^63 bytes, and those that have no
    /// memory cost nothing.
    end: Mutex<u64>,
}

impl PhysicalPool {
    /// A pool without memory.
    pub fn new() -> io::Result<Self> {
        let file = memfd_create("vgpu-physical", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        // Nobody can shorten it: an access to a mapping beyond the end of its file would end this process.
        fcntl_add_seals(&file, SealFlags::SHRINK)?;
        Ok(Self(Arc::new(File { file, end: Mutex::new(0) })))
    }

    /// Bytes of the host's memory that all pieces together occupy.
    pub fn occupied(&self) -> io::Result<u64> {
        Ok(fstat(&self.0.file)?.st_blocks.cast_unsigned() * BLOCK)
    }

    /// Memory of `bytes`, rounded up to whole pages; it occupies the host as far as it is written.
    pub fn take(&self, bytes: u64) -> io::Result<Physical> {
        let mut end = self.0.end.lock().unwrap_or_else(PoisonError::into_inner);
        let offset = *end;
        let bytes = bytes.checked_next_multiple_of(PAGE).ok_or(io::ErrorKind::OutOfMemory)?;
        let next = offset.checked_add(bytes).ok_or(io::ErrorKind::OutOfMemory)?;
        ftruncate(&self.0.file, next)?;
        *end = next;
        drop(end);
        Ok(Physical(Arc::new(Piece { pool: self.clone(), offset, bytes })))
    }
}

/// Memory without an address, zero at first. Clones are the same memory. It goes back to the system when the
/// last clone and the last mapping are gone.
#[derive(Clone, Debug)]
pub struct Physical(Arc<Piece>);

#[derive(Debug)]
struct Piece {
    pool: PhysicalPool,
    offset: u64,
    bytes: u64,
}

impl Physical {
    /// Size in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.bytes
    }

    /// Where in the file it begins.
    pub(super) fn offset(&self) -> u64 {
        self.0.offset
    }

    pub(super) fn file(&self) -> BorrowedFd<'_> {
        self.0.pool.0.file.as_fd()
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let punched = retry_on_intr(|| fallocate(&self.pool.0.file, hole, self.offset, self.bytes));
        // No other piece is ever put here: what could not be given back now is so when the pool goes.
        debug_assert!(punched.is_ok(), "a hole can be made in a file in memory: {punched:?}");
    }
}
