//! Guest pages of which both sides know where they are: memory that the host is given by its guest-physical address.
//!
//! Such memory must stay where it is. Only pages of 2 MiB (hugetlb) do: others are moved by the kernel as it likes, locked or not, so
//! they are not used. Which pages they are, the kernel tells root alone. On a simulated bus, guest memory is a file.
//!
//! A device of version 1 takes one range, which must be contiguous ([`Contiguous`]); one of version 2 takes a list ([`HugePages`]). Hosts may write
//! to them when the process that gave them is dead already, so they outlive it.

mod contiguous;
mod frames;
mod huge_page_pool;
mod named;

pub(crate) use contiguous::Contiguous;
pub(crate) use huge_page_pool::{HugePagePool, HugePages, REST, device_key};

use std::fs::File;
use std::os::fd::AsRawFd;

/// Bytes of a large page.
pub(crate) const LARGE: usize = 2 << 20;

/// Locks a part of a file for as long as it is open. False: another process has it.
fn lock(file: &File, start: u64, bytes: u64) -> bool {
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
