//! The window: a file that both sides map, or a part of one. This module owns the mapping, and is the only
//! access to it, by copies and atomics.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64};

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, memfd_create};
use rustix::io::Errno;
use vm_memory::{FileOffset, MmapRegion, VolatileMemory};

/// A part of memory that a guest may write at any moment. It is copied from and to, and never referenced.
pub type SharedSlice<'a> = vm_memory::VolatileSlice<'a, ()>;

/// Reason for which a window cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum WindowError {
    /// The file cannot be created or sized.
    #[error("create window file {path}")]
    File {
        /// Path of the window's file.
        path: PathBuf,
        /// Error of the system call.
        #[source]
        source: io::Error,
    },
    /// The file cannot be mapped.
    #[error("map {bytes} bytes of window file {path}")]
    Map {
        /// Path of the window's file.
        path: PathBuf,
        /// Number of bytes to map.
        bytes: u64,
        /// Error of the system call.
        #[source]
        source: vm_memory::mmap::MmapRegionError,
    },
}

/// Host's mapping of memory that the guest maps too: BAR2, or guest pages.
#[derive(Debug)]
pub struct Window {
    region: MmapRegion<()>,
    file: File,
    bytes: u64,
}

impl Window {
    /// Creates the file at `path`, which must not exist, with a length of `bytes`, and maps it shared. Memory
    /// is allocated when it is first used.
    pub fn create(path: &Path, bytes: u64) -> Result<Self, WindowError> {
        let file_error = |source| WindowError::File { path: path.to_owned(), source };
        let file =
            OpenOptions::new().read(true).write(true).create_new(true).open(path).map_err(file_error)?;
        Self::from_file(file, path, bytes)
    }

    /// Makes a window in an anonymous memory file that no other process maps.
    pub fn private(bytes: u64) -> Result<Self, WindowError> {
        let path = Path::new("(private)");
        let file = memfd_create("vgpu-mediator", MemfdFlags::CLOEXEC)
            .map_err(|error| WindowError::File { path: path.to_owned(), source: error.into() })?;
        Self::from_file(File::from(file), path, bytes)
    }

    fn from_file(file: File, path: &Path, bytes: u64) -> Result<Self, WindowError> {
        let file_error = |source| WindowError::File { path: path.to_owned(), source };
        file.set_len(bytes).map_err(file_error)?;
        Self::map(path, file, 0, bytes)
    }

    /// Makes a window of a region that the caller has mapped, and the file of the region. A worker process
    /// maps only those parts of the device's window that belong to its session, and the gaps between them
    /// must not be accessed.
    #[must_use]
    pub fn from_region(region: MmapRegion<()>, file: File) -> Self {
        let bytes = region.size() as u64;
        Self { region, file, bytes }
    }

    /// Maps `bytes` of an existing file from `offset` on.
    pub fn from_file_range(file: File, offset: u64, bytes: u64) -> Result<Self, WindowError> {
        Self::map(Path::new("(guest memory)"), file, offset, bytes)
    }

    /// Makes a window in an anonymous memory file, for a peer that receives the descriptor. Its size is
    /// sealed, because a peer that shrank it would cause SIGBUS here.
    pub fn anonymous(bytes: u64) -> Result<Self, WindowError> {
        let path = Path::new("memfd:window");
        let file_error = |source| WindowError::File { path: path.to_owned(), source };
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = File::from(memfd_create("window", flags).map_err(|error| file_error(error.into()))?);
        file.set_len(bytes).map_err(file_error)?;
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        fcntl_add_seals(&file, seals).map_err(|error| file_error(error.into()))?;
        Self::map(path, file, 0, bytes)
    }

    fn map(path: &Path, file: File, offset: u64, bytes: u64) -> Result<Self, WindowError> {
        let file_error = |source| WindowError::File { path: path.to_owned(), source };
        let mapped = file.try_clone().map_err(file_error)?;
        let map_error = |source| WindowError::Map { path: path.to_owned(), bytes, source };
        let size = usize::try_from(bytes)
            .map_err(|_| map_error(vm_memory::mmap::MmapRegionError::InvalidOffsetLength))?;
        let region = MmapRegion::from_file(FileOffset::new(mapped, offset), size).map_err(map_error)?;
        Ok(Self { region, file, bytes })
    }

    /// Returns the file, for another process that maps it.
    #[must_use]
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Returns the offset in the file at which the memory begins.
    #[must_use]
    pub fn file_offset(&self) -> u64 {
        self.region.file_offset().map_or(0, FileOffset::start)
    }

    /// Returns the size in bytes.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns `bytes` from `offset` on, or `None` if they are not all within the window.
    #[must_use]
    pub fn slice(&self, offset: u64, bytes: u64) -> Option<SharedSlice<'_>> {
        self.region.get_slice(usize::try_from(offset).ok()?, usize::try_from(bytes).ok()?).ok()
    }

    /// Returns the 64-bit field at `offset`. The offset is one of the device's own areas, which were checked
    /// to lie within the window when the device was made. It never comes from a guest.
    ///
    /// # Panics
    /// Panics if the field is unaligned or beyond the end.
    #[must_use]
    pub fn u64_at(&self, offset: u64) -> &AtomicU64 {
        self.region.get_atomic_ref(offset as usize).expect("an aligned field within the areas")
    }

    /// Returns the 32-bit field at `offset`, as [`Window::u64_at`] does for 64 bits.
    #[must_use]
    pub fn u32_at(&self, offset: u64) -> &AtomicU32 {
        self.region.get_atomic_ref(offset as usize).expect("an aligned field within the areas")
    }

    /// Allocates storage for a range of the file. Unwritten bytes read zeros. Returns false if there is no
    /// room. An access to shared memory without storage raises SIGBUS, so this comes first.
    #[must_use]
    pub fn reserve(&self, offset: u64, bytes: u64) -> bool {
        match fallocate(&self.file, FallocateFlags::KEEP_SIZE, offset, bytes) {
            // The filesystem cannot allocate in advance, because it is on a disk or a special one.
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => true,
            Err(_) => false,
        }
    }

    /// Clears a page-aligned range and returns its memory to the host.
    pub fn clear(&self, offset: u64, bytes: u64) {
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        if fallocate(&self.file, hole, offset, bytes).is_ok() {
            return;
        }
        // The filesystem cannot make holes.
        self.zero(offset, bytes);
    }

    /// Clears a page-aligned range and keeps its memory, which both sides have mapped. It is faster than
    /// [`Window::clear`] for memory that is soon used again.
    pub(crate) fn zero(&self, offset: u64, bytes: u64) {
        if let Some(slice) = self.slice(offset, bytes) {
            let zeros = [0u8; 4096];
            for at in (0..slice.len()).step_by(zeros.len()) {
                if let Ok(part) = slice.offset(at) {
                    part.copy_from(&zeros);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn a_cleared_range_reads_zeros_and_its_neighbours_stay() {
        let dir = tempfile::tempdir().unwrap();
        let window = Window::create(&dir.path().join("w"), 0x4_0000).unwrap();
        window.slice(0, 0x4_0000).unwrap().copy_from(&vec![7u8; 0x4_0000]);
        window.clear(0x1_0000, 0x1_0000);
        assert_eq!(window.u64_at(0xfff8).load(Ordering::Relaxed), 0x0707_0707_0707_0707);
        assert_eq!(window.u64_at(0x1_0000).load(Ordering::Relaxed), 0);
        assert_eq!(window.u64_at(0x1_fff8).load(Ordering::Relaxed), 0);
        assert_eq!(window.u32_at(0x2_0000).load(Ordering::Relaxed), 0x0707_0707);
    }

    #[test]
    fn memory_without_a_name_keeps_its_size() {
        let window = Window::anonymous(0x2000).unwrap();
        let file = File::from(window.file().try_clone_to_owned().unwrap());
        assert_eq!(file.metadata().unwrap().len(), 0x2000);
        assert!(file.set_len(0x1000).is_err() && file.set_len(0x3000).is_err());
        std::os::unix::fs::FileExt::write_all_at(&file, &[9], 0x1fff).unwrap();
        let mut byte = [0_u8];
        window.slice(0x1fff, 1).unwrap().copy_to(&mut byte);
        assert_eq!(byte, [9]);
    }

    #[test]
    fn no_slice_reaches_beyond_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let window = Window::create(&dir.path().join("w"), 0x1000).unwrap();
        assert!(window.slice(0xfff, 1).is_some());
        assert!(window.slice(0xfff, 2).is_none());
        assert!(window.slice(u64::MAX, 2).is_none());
        assert!(window.slice(2, u64::MAX).is_none());
    }
}
