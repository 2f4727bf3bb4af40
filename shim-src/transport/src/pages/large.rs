//! Large pages, and the locks that tell who owns a part of a file of them.

use std::fs::File;
use std::os::fd::AsRawFd;

/// Size of a large page in bytes.
pub const LARGE_PAGE: usize = 2 << 20;

/// Locks a part of a file for as long as the file is open. Returns false if another process has locked it.
pub fn lock_range(file: &File, start: u64, bytes: u64) -> bool {
    let lock = libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: start as libc::off_t,
        l_len: bytes as libc::off_t,
        l_pid: 0,
    };
    // SAFETY: the kernel reads the structure.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) == 0 }
}
