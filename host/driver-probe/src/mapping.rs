//! Memory of this process that other processes could share: memory files, with and without large pages, and
//! files of a directory. The driver is asked whether it registers them.

#![allow(unsafe_code, reason = "the mapping is memory; audited with the module driver")]

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::fs::{MemfdFlags, ftruncate, memfd_create, unlink};
use rustix::mm::{MapFlags, ProtFlags, mmap};

/// Bytes of a large page of x86-64.
pub(crate) const LARGE_PAGE: usize = 2 << 20;

/// A shared, writable mapping that lives as long as the process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mapping {
    address: usize,
    bytes: usize,
}

impl Mapping {
    /// Maps a new memory file of `bytes`, of large pages if `large`.
    pub(crate) fn memfd(bytes: usize, large: bool) -> io::Result<Self> {
        let pages = if large { MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB } else { MemfdFlags::empty() };
        let file = File::from(memfd_create("vgpu-driver-probe", MemfdFlags::CLOEXEC | pages)?);
        Self::of_file(&file, bytes)
    }

    /// Maps a new file of `bytes` in a directory, which loses its name at once.
    pub(crate) fn file(directory: &Path, bytes: usize) -> io::Result<Self> {
        let path = directory.join(format!(".vgpu-driver-probe.{}", std::process::id()));
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
        unlink(&path)?;
        Self::of_file(&file, bytes)
    }

    fn of_file(file: &File, bytes: usize) -> io::Result<Self> {
        ftruncate(file, bytes as u64)?;
        let (access, shared) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::POPULATE);
        // SAFETY: the kernel chooses the addresses, so nothing that exists is replaced.
        let address = unsafe { mmap(std::ptr::null_mut(), bytes, access, shared, file, 0) }?;
        Ok(Self { address: address.expose_provenance(), bytes })
    }

    /// Returns the first address.
    pub(crate) const fn address(self) -> usize {
        self.address
    }

    /// Returns the size in bytes.
    pub(crate) const fn bytes(self) -> usize {
        self.bytes
    }

    /// Returns the 64-bit word at a byte offset, which must be a multiple of 8 within the mapping.
    pub(crate) fn word(self, offset: usize) -> &'static AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset < self.bytes, "a word of the mapping");
        let pointer = std::ptr::with_exposed_provenance_mut::<u64>(self.address + offset);
        // SAFETY: the word lies in the mapping, which is never unmapped, and is aligned; all of this
        // process's accesses to it are atomic.
        unsafe { AtomicU64::from_ptr(pointer) }
    }

    /// Returns the 32-bit word at a byte offset, which must be a multiple of 8 within the mapping.
    pub(crate) fn half_word(self, offset: usize) -> &'static AtomicU32 {
        let pointer = self.word(offset).as_ptr().cast();
        // SAFETY: the first half of an aligned word that is never unmapped, which is accessed atomically.
        unsafe { AtomicU32::from_ptr(pointer) }
    }

    /// Returns the number of 64-bit words that do not have this value.
    pub(crate) fn words_other_than(self, value: u64) -> usize {
        (0..self.bytes).step_by(8).filter(|&at| self.word(at).load(Ordering::Relaxed) != value).count()
    }
}
