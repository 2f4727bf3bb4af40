//! Tests whether the system permits mapping a file for execution, by trying it. A mount option, a security
//! module or a system setting may forbid it.

use std::num::NonZeroUsize;
use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};

/// Size of the tested mapping in bytes: one page.
const PAGE: NonZeroUsize = NonZeroUsize::new(4096).unwrap();

/// Maps a page of `file` as the loader maps code, and unmaps it again.
pub fn mappable(file: impl AsFd) -> Result<(), Errno> {
    let protection = ProtFlags::PROT_READ | ProtFlags::PROT_EXEC;
    // SAFETY: a new private mapping at an address of the kernel's choice overlaps nothing; it is never read
    // or run.
    let address = unsafe { mmap(None, PAGE, protection, MapFlags::MAP_PRIVATE, file, 0) }?;
    // SAFETY: exactly the mapping made above, which nothing refers to.
    unsafe { munmap(address, PAGE.get()) }
}
