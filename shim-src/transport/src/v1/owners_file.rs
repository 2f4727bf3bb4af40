//! The file by which new guests' processes on a device of version 1 know of each other.
//!
//! Byte *i* is locked, by POSIX record lock, by the process with token *i* for as long as it lives
//! ([`crate::lock`]). Byte 64 + *i* is 1 while the host may hold something for that token. Byte 128 names the
//! process that held the device's lock last, bytes 129 to 137 the process whose pages are registered as the
//! window, and their address. Bytes 138 to 145 hold the boot of the machine in which an old guest was met.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::lock::LockFile;

use super::shared_file::{For, own, shared};

/// Offset of the marks of tokens that are in use.
const MARKS: u64 = 64;
/// Offset of the token that held the device's lock last, plus 1; or [`NOBODY`].
const LAST: u64 = 128;
/// Offset of the token whose pages are registered as the window, as at [`LAST`], but 0 where there are none.
const WINDOW: u64 = 129;
/// Offset of the guest-physical address of those pages.
const WINDOW_ADDRESS: u64 = 130;
/// Offset of the boot of the machine in which an old guest was met ([`this_boot`]).
const COMPANY: u64 = 138;
/// Length of the file in bytes.
const BYTES: usize = 146;
/// [`LAST`]: a process without a token, which only looked.
const NOBODY: u8 = u8::MAX;

/// The file, open.
#[derive(Debug)]
pub(crate) struct OwnersFile {
    path: PathBuf,
    file: LockFile,
    boot: [u8; 8],
}

/// What the file said when the device's lock was taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// The process that asks held the lock last, as far as new guests know.
    pub(super) mine: bool,
    /// An old guest was met since the machine booted.
    pub(super) company: bool,
    /// What a new guest has registered as the window.
    pub(super) registered: Option<Registrant>,
}

/// The process whose pages are the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Registrant {
    /// Its token; `None`: it had none.
    pub(crate) token: Option<u32>,
    /// Guest-physical address of the pages.
    pub(crate) address: u64,
}

impl OwnersFile {
    /// Opens the file, and creates it where it does not exist.
    ///
    /// # Errors
    /// It cannot be opened, or something else was put in its place.
    pub(super) fn open(path: PathBuf) -> io::Result<Self> {
        // Only to create it: a process that has a file open twice and closes it once loses its locks.
        if !path.exists() {
            shared(&path, For::Marks)?;
        }
        let owners = Self { file: LockFile::open(&path)?, path, boot: this_boot() };
        owners.with(own)?;
        Ok(owners)
    }

    /// Where the file is, for the locks of tokens.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads what the file says to the process with that token, and stores that this process has the device's
    /// lock now.
    pub(super) fn take_over(&self, token: Option<u32>) -> io::Result<Seen> {
        let me = token.map_or(NOBODY, |token| token as u8 + 1);
        let bytes = self.bytes()?;
        let mine = me != NOBODY && bytes[LAST as usize] == me;
        if !mine {
            self.write(LAST, me)?;
        }
        let company = bytes[COMPANY as usize..] == self.boot;
        Ok(Seen { mine, company, registered: registrant(&bytes) })
    }

    /// Tokens for which the host may hold something, one bit each.
    pub(crate) fn marks(&self) -> io::Result<u64> {
        let bytes = self.bytes()?;
        let marks = bytes[MARKS as usize..LAST as usize].iter().enumerate();
        Ok(marks.filter(|&(_, &mark)| mark != 0).fold(0, |bits, (token, _)| bits | 1 << token))
    }

    /// Stores whether the host may hold something for a token that this process has locked.
    pub(crate) fn mark(&self, token: u32, used: bool) -> io::Result<()> {
        self.write(MARKS + u64::from(token), u8::from(used))
    }

    /// Whether the process that had a token is dead, or has returned it.
    pub(crate) fn is_free(&self, token: u32) -> io::Result<bool> {
        let free = self.file.try_lock(token)?;
        if free {
            self.file.unlock(token);
        }
        Ok(free)
    }

    /// Stores that an old guest was met, for as long as the machine runs.
    pub(super) fn meet(&self) -> io::Result<()> {
        self.with(|file| file.write_all_at(&self.boot, COMPANY))
    }

    /// Stores whose pages are the window. `None`: no new guest's.
    pub(super) fn set_registered(&self, registrant: Option<Registrant>) -> io::Result<()> {
        let (token, address) = registrant.map_or((0, 0), |registrant| {
            (registrant.token.map_or(NOBODY, |token| token as u8 + 1), registrant.address)
        });
        let mut record = [token; 9];
        record[1..].copy_from_slice(&u64::to_le_bytes(address));
        const { assert!(WINDOW_ADDRESS == WINDOW + 1 && WINDOW_ADDRESS + 8 == COMPANY) };
        self.with(|file| file.write_all_at(&record, WINDOW))
    }

    fn bytes(&self) -> io::Result<[u8; BYTES]> {
        let mut bytes = [0; BYTES];
        self.with(|file| {
            // A file that was just created is shorter: the rest is zero.
            file.read_at(&mut bytes, 0)
        })?;
        Ok(bytes)
    }

    fn write(&self, offset: u64, value: u8) -> io::Result<()> {
        self.with(|file| file.write_all_at(&[value], offset))
    }

    /// Calls `what` with the file, which stays open.
    fn with<T>(&self, what: impl FnOnce(&File) -> io::Result<T>) -> io::Result<T> {
        self.file.with_number(|number| {
            // SAFETY: the number is the lock file's descriptor, which lives as long as `file`; it is not
            // closed here.
            let file = core::mem::ManuallyDrop::new(unsafe { File::from_raw_fd(number) });
            debug_assert_eq!(file.as_raw_fd(), number);
            what(&file)
        })
    }
}

/// What the file says of the window.
fn registrant(bytes: &[u8; BYTES]) -> Option<Registrant> {
    let token = match bytes[WINDOW as usize] {
        0 => return None,
        NOBODY => None,
        token => Some(u32::from(token) - 1),
    };
    let address = bytes[WINDOW_ADDRESS as usize..COMPANY as usize].try_into().map_or(0, u64::from_le_bytes);
    Some(Registrant { token, address })
}

/// What tells this boot of the machine from others. Never zeros. Where the kernel does not say it, all boots
/// are one.
fn this_boot() -> [u8; 8] {
    let text = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    text.first_chunk().copied().unwrap_or([1; 8])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let owners = OwnersFile::open(dir.path().join("owners")).unwrap();
        assert_eq!(owners.marks().unwrap(), 0);
        owners.mark(63, true).unwrap();
        owners.mark(5, true).unwrap();
        owners.mark(6, false).unwrap();
        assert_eq!(owners.marks().unwrap(), 1 << 63 | 1 << 5);
    }
}
