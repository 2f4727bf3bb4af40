//! Whether the system lets a file be mapped for execution, found out by doing it: a mount option, a security
//! module or a system setting may say no.

use std::num::NonZeroUsize;
use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};

/// One page, which is enough for the test.
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
