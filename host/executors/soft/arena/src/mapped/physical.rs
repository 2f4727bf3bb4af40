//! Physical memory: ranges of a memory file that can be mapped at several addresses. A session has one file
//! for all of its physical memory, because the number of open files of a process is limited.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{
    FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, fstat, ftruncate, memfd_create,
};
use rustix::io::retry_on_intr;

use crate::page::PAGE;

/// Unit of `st_blocks` in bytes.
const BLOCK: u64 = 512;

/// A pool from which physical memory is allocated. Clones share it.
#[derive(Clone, Debug)]
pub struct PhysicalPool(Arc<PoolFile>);

#[derive(Debug)]
struct PoolFile {
    file: OwnedFd,
    /// End of the newest allocation. Offsets are never used again: the file can have 2^63 bytes, and offsets
    /// without memory cost nothing.
    end: Mutex<u64>,
}

impl PhysicalPool {
    /// Makes an empty pool, which is a sealed memory file.
    pub fn new() -> io::Result<Self> {
        let file = memfd_create("vgpu-physical", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        // The seal prevents shortening, because an access to a mapping beyond the end of its file would kill
        // this process.
        fcntl_add_seals(&file, SealFlags::SHRINK)?;
        Ok(Self(Arc::new(PoolFile { file, end: Mutex::new(0) })))
    }

    /// Returns the number of bytes of host memory that the pool occupies: pages that have been written and
    /// not yet been returned. Fails if the system cannot tell.
    pub fn occupied(&self) -> io::Result<u64> {
        Ok(fstat(&self.0.file)?.st_blocks.cast_unsigned() * BLOCK)
    }

    /// Allocates `bytes`, rounded up to whole pages, filled with zeros. Pages occupy host memory once they
    /// are written. Fails with `OutOfMemory` if the file would exceed 64 bits, and with the system's error if
    /// the file cannot grow.
    pub fn allocate(&self, bytes: u64) -> io::Result<Physical> {
        let mut end = self.0.end.lock().unwrap_or_else(PoisonError::into_inner);
        let offset = *end;
        let bytes = bytes.checked_next_multiple_of(PAGE).ok_or(io::ErrorKind::OutOfMemory)?;
        let next = offset.checked_add(bytes).ok_or(io::ErrorKind::OutOfMemory)?;
        ftruncate(&self.0.file, next)?;
        *end = next;
        drop(end);
        Ok(Physical(Arc::new(PhysicalRange { pool: self.clone(), offset, bytes })))
    }
}

/// Memory without an address, initially zero. Clones share it. It is returned to the system when the last
/// clone and the last mapping are dropped.
#[derive(Clone, Debug)]
pub struct Physical(Arc<PhysicalRange>);

#[derive(Debug)]
struct PhysicalRange {
    pool: PhysicalPool,
    offset: u64,
    bytes: u64,
}

impl Physical {
    /// Returns the size in bytes, a multiple of [`PAGE`].
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.bytes
    }

    /// Returns the offset of the first byte in the pool's file.
    pub(super) fn offset(&self) -> u64 {
        self.0.offset
    }

    pub(super) fn file(&self) -> BorrowedFd<'_> {
        self.0.pool.0.file.as_fd()
    }
}

impl Drop for PhysicalRange {
    fn drop(&mut self) {
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let punched = retry_on_intr(|| fallocate(&self.pool.0.file, hole, self.offset, self.bytes));
        // The range is never used again. Memory that the system does not take back now is returned with the
        // pool.
        debug_assert!(punched.is_ok(), "a hole can be made in a file in memory: {punched:?}");
    }
}
