//! `openat2`, where the kernel has it.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;

/// How a directory is opened to reach what is in it: without rights to list it, and closed on exec.
pub(crate) const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// What resolves a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kernel {
    /// `openat2` first, then the walk.
    New,
    /// The walk alone: Linux before 5.6, and sandboxes that refuse system calls they do not know.
    Old,
}

/// Opens the directory `path` below `start` by one call. `None`: this kernel cannot, or cannot tell now
/// because something was renamed meanwhile; the walk can.
pub(crate) fn directory(
    kernel: Kernel,
    start: BorrowedFd<'_>,
    path: &Path,
    resolve: ResolveFlags,
) -> Option<Result<OwnedFd, Errno>> {
    static MISSING: AtomicBool = AtomicBool::new(false);
    if kernel == Kernel::Old || MISSING.load(Ordering::Relaxed) {
        return None;
    }
    match openat2(start, path, DIRECTORY, Mode::empty(), resolve) {
        // Sandboxes answer EPERM to calls they do not know.
        Err(Errno::NOSYS | Errno::PERM) => {
            MISSING.store(true, Ordering::Relaxed);
            None
        }
        Err(Errno::AGAIN) => None,
        opened => Some(opened),
    }
}
