//! Unsafe code of every worker: [`close_inherited`], and the mapping of the window ([`Reservation`]).
//! A worker reserves addresses for the whole window, and maps memory only for the parts of its session.
//!
//! **Invariant.** `base` and `bytes` are a mapping that this module made and that lives as long as the
//! process. Every change replaces whole pages within it, so no other mapping is ever touched. An access to a
//! part that is not mapped ends the worker process.

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::ptr;

use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous};
use vgpu_device::Window;
use vm_memory::MmapRegion;

/// Alignment of the parts of the window.
const PAGE: u64 = 0x1000;

/// Closes all descriptors except the standard three. The parent process may have received some, from a
/// library for instance, without marking them as closed on exec.
pub(crate) fn close_inherited() {
    // SAFETY: the system call accesses no memory. Nothing of this program refers to the closed descriptors,
    // because `main` requires of its callers that the program has opened nothing before.
    let closed = unsafe { libc::close_range(3, libc::c_uint::MAX, 0) };
    if closed != 0 {
        // Kernels before 5.9 lack the call.
        tracing::warn!("inherited descriptors stay open: {}", io::Error::last_os_error());
    }
}

/// The addresses of the window in this process.
#[derive(Debug)]
pub(crate) struct Reservation {
    base: *mut c_void,
    bytes: u64,
    file: File,
    /// Offset of the window in the file.
    offset: u64,
}

// SAFETY: the addresses belong to the process for its whole life, and the methods are system calls, which
// several threads may make at once.
unsafe impl Send for Reservation {}
// SAFETY: as above.
unsafe impl Sync for Reservation {}

impl Reservation {
    /// Reserves addresses for the `bytes` of `file` from `offset` on, whole pages. They stay reserved until
    /// the process ends, because [`Window`]s refer to them.
    pub(crate) fn new(file: File, offset: u64, bytes: u64) -> io::Result<Self> {
        let length = usize::try_from(bytes).map_err(|_| io::ErrorKind::InvalidInput)?;
        if length == 0 || !bytes.is_multiple_of(PAGE) || !offset.is_multiple_of(PAGE) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address that the kernel chooses replaces nothing.
        let base = unsafe { mmap_anonymous(ptr::null_mut(), length, ProtFlags::empty(), flags) }?;
        Ok(Self { base, bytes, file, offset })
    }

    /// Returns the window. Only the mapped parts of it may be accessed.
    pub(crate) fn window(&self) -> io::Result<Window> {
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: by the invariant, base and bytes are a mapping that is never removed.
        let region =
            unsafe { MmapRegion::build_raw(self.base.cast(), self.bytes as usize, protection, flags) };
        Ok(Window::from_region(region.map_err(io::Error::other)?, self.file.try_clone()?))
    }

    /// Maps a part of the window, whole pages.
    pub(crate) fn map(&self, offset: u64, bytes: u64) -> io::Result<()> {
        let (at, length) = self.part(offset, bytes)?;
        let place = self.offset.checked_add(offset).ok_or(io::ErrorKind::InvalidInput)?;
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        // SAFETY: `part` returned whole pages of the reservation, which nothing else of the process uses.
        unsafe { mmap(at, length, ProtFlags::READ | ProtFlags::WRITE, flags, &self.file, place) }?;
        Ok(())
    }

    /// Unmaps whole pages of the window, and keeps their addresses reserved. Nothing may refer to them any more;
    /// a later access ends the process.
    pub(crate) fn unmap(&self, offset: u64, bytes: u64) -> io::Result<()> {
        let (at, length) = self.part(offset, bytes)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        // SAFETY: as in `map`.
        unsafe { mmap_anonymous(at, length, ProtFlags::empty(), flags) }?;
        Ok(())
    }

    fn part(&self, offset: u64, bytes: u64) -> io::Result<(*mut c_void, usize)> {
        let end = offset.checked_add(bytes).filter(|&end| end <= self.bytes);
        if end.is_none() || bytes == 0 || !offset.is_multiple_of(PAGE) || !bytes.is_multiple_of(PAGE) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Ok((self.base.wrapping_byte_add(offset as usize), bytes as usize))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    fn maps_of(base: usize) -> Vec<String> {
        let text = std::fs::read_to_string("/proc/self/maps").unwrap();
        text.lines().filter(|line| line.starts_with(&format!("{base:x}-"))).map(str::to_owned).collect()
    }

    #[test]
    fn only_what_is_mapped_is_there() {
        let whole = Window::anonymous(0x8000).unwrap();
        let file = File::from(whole.file().try_clone_to_owned().unwrap());
        let reserved = Reservation::new(file, 0, 0x8000).unwrap();
        let window = reserved.window().unwrap();
        reserved.map(0x2000, 0x1000).unwrap();
        whole.u64_at(0x2008).store(5, Ordering::Relaxed);
        assert_eq!(window.u64_at(0x2008).load(Ordering::Relaxed), 5);
        let base = reserved.base.addr();
        assert!(maps_of(base)[0].contains(" ---p "));
        assert!(maps_of(base + 0x2000)[0].contains(" rw-s "));
        assert!(maps_of(base + 0x3000)[0].contains(" ---p "));
        reserved.unmap(0x2000, 0x1000).unwrap();
        assert!(maps_of(base + 0x2000).is_empty(), "one reservation again");
    }

    #[test]
    fn parts_lie_within_the_window() {
        let whole = Window::anonymous(0x4000).unwrap();
        let file = || File::from(whole.file().try_clone_to_owned().unwrap());
        let reserved = Reservation::new(file(), 0, 0x4000).unwrap();
        for (offset, bytes) in
            [(0, 0), (0, 0x5000), (0x4000, 0x1000), (1, 0x1000), (0, 1), (u64::MAX - 0xfff, 0x1000)]
        {
            assert!(
                reserved.map(offset, bytes).is_err() && reserved.unmap(offset, bytes).is_err(),
                "{bytes} at {offset}"
            );
        }
        assert!(Reservation::new(file(), 1, 0x1000).is_err() && Reservation::new(file(), 0, 5).is_err());
    }
}
