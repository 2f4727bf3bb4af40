//! Calls `openat2` where the kernel supports it.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;

/// Flags to open a directory in order to reach its entries. They do not require permission to list it.
pub(crate) const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// How paths are resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kernel {
    /// Paths are resolved by `openat2`, or by the walk if that is not possible.
    New,
    /// Paths are resolved by the walk alone, as on Linux before 5.6 and in sandboxes that reject unknown
    /// system calls.
    Old,
}

/// Opens the directory `path` below `start` by one call. Returns `None` if the walk must resolve the path,
/// because the kernel has no `openat2` or something was renamed meanwhile.
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
        // Sandboxes return EPERM for unknown calls.
        Err(Errno::NOSYS | Errno::PERM) => {
            MISSING.store(true, Ordering::Relaxed);
            None
        }
        // The walk tells whether it is a directory that refuses, or a sandbox.
        Err(Errno::AGAIN | Errno::ACCESS) => None,
        opened => Some(opened),
    }
}
