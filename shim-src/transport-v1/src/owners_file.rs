//! The file of owners, in which processes of new guests record their tokens and the window for each other.
//!
//! The process with token *i* holds a POSIX record lock on byte *i* as long as it lives
//! ([`vgpu_transport::parts::LockFile`]). Byte 64 + *i* is 1 while the host may hold objects of that token.
//! Byte 128 names the last holder of the device's lock, bytes 129 to 137 the process whose pages are
//! registered as the window, and their address. Bytes 138 to 145 identify the boot of the machine during
//! which an old guest was noticed.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use vgpu_transport::parts::LockFile;

use crate::shared_file::{FilePurpose, require_own_file, shared};

/// Offset of the 64 bytes that tell which tokens are in use.
const MARKS: u64 = 64;
/// Offset of the byte for the last holder of the device's lock: its token plus 1, or [`NOBODY`].
const LAST: u64 = 128;
/// Offset of the byte for the owner of the window, encoded as at [`LAST`]; 0 if there is no window.
const WINDOW: u64 = 129;
/// Offset of the guest-physical address of the window.
const WINDOW_ADDRESS: u64 = 130;
/// Offset of the boot during which an old guest was noticed ([`this_boot`]).
const OLD_GUESTS: u64 = 138;
/// Length of the file in bytes.
const BYTES: usize = 146;
/// Value at [`LAST`] for a process without a token, which opened the device and did not attach.
const NOBODY: u8 = u8::MAX;

/// The file of owners, open.
#[derive(Debug)]
pub(crate) struct OwnersFile {
    path: PathBuf,
    file: LockFile,
    /// Identifier of this boot of the machine.
    boot: [u8; 8],
}

/// Contents of the file when this process acquired the device's lock.
#[derive(Clone, Copy, Debug)]
pub(super) struct LockRecord {
    /// Whether this process was the last holder, as far as new guests record.
    pub(super) mine: bool,
    /// Whether an old guest was noticed since the machine booted.
    pub(super) old_guests: bool,
    /// Process of a new guest whose pages are registered as the window; `None` if there is none.
    pub(super) registered: Option<Registrant>,
}

/// The process whose pages are registered as the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Registrant {
    /// Token of the process; `None` if it has none.
    pub(crate) token: Option<u32>,
    /// Guest-physical address of the pages.
    pub(crate) address: u64,
}

impl OwnersFile {
    /// Opens the file, and creates it where it does not exist.
    ///
    /// # Errors
    /// Fails if the file cannot be opened, or is not a regular file with one name.
    pub(super) fn open(path: PathBuf) -> io::Result<Self> {
        // The file is opened here only to create it: closing a second descriptor later would drop the record
        // locks.
        if !path.exists() {
            shared(&path, FilePurpose::Marks)?;
        }
        let owners = Self { file: LockFile::open(&path)?, path, boot: this_boot() };
        owners.with(require_own_file)?;
        Ok(owners)
    }

    /// Returns the path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the file for the process with that token, and records that process as the last holder of the
    /// device's lock.
    pub(super) fn record_holder(&self, token: Option<u32>) -> io::Result<LockRecord> {
        let me = token.map_or(NOBODY, |token| token as u8 + 1);
        let bytes = self.bytes()?;
        let mine = me != NOBODY && bytes[LAST as usize] == me;
        if !mine {
            self.write(LAST, me)?;
        }
        let old_guests = bytes[OLD_GUESTS as usize..] == self.boot;
        Ok(LockRecord { mine, old_guests, registered: registrant(&bytes) })
    }

    /// Returns the tokens of which the host may hold objects, one bit each.
    pub(crate) fn tokens_in_use(&self) -> io::Result<u64> {
        let bytes = self.bytes()?;
        let marks = bytes[MARKS as usize..LAST as usize].iter().enumerate();
        Ok(marks.filter(|&(_, &mark)| mark != 0).fold(0, |bits, (token, _)| bits | 1 << token))
    }

    /// Records whether the host may hold objects of a token. This process has locked the token.
    pub(crate) fn set_in_use(&self, token: u32, used: bool) -> io::Result<()> {
        self.write(MARKS + u64::from(token), u8::from(used))
    }

    /// Returns whether no process holds a token.
    pub(crate) fn is_free(&self, token: u32) -> io::Result<bool> {
        let free = self.file.try_lock(token)?;
        if free {
            self.file.unlock(token);
        }
        Ok(free)
    }

    /// Records until the next boot that an old guest was noticed.
    pub(super) fn note_old_guest(&self) -> io::Result<()> {
        self.with(|file| file.write_all_at(&self.boot, OLD_GUESTS))
    }

    /// Records the process whose pages are the window; `None` means that they are no new guest's.
    pub(super) fn set_registered(&self, registrant: Option<Registrant>) -> io::Result<()> {
        let (token, address) = registrant.map_or((0, 0), |registrant| {
            (registrant.token.map_or(NOBODY, |token| token as u8 + 1), registrant.address)
        });
        let mut record = [token; 9];
        record[1..].copy_from_slice(&u64::to_le_bytes(address));
        const { assert!(WINDOW_ADDRESS == WINDOW + 1 && WINDOW_ADDRESS + 8 == OLD_GUESTS) };
        self.with(|file| file.write_all_at(&record, WINDOW))
    }

    fn bytes(&self) -> io::Result<[u8; BYTES]> {
        let mut bytes = [0; BYTES];
        self.with(|file| {
            // A file that was just created is shorter, and the bytes that it lacks are zero.
            file.read_at(&mut bytes, 0)
        })?;
        Ok(bytes)
    }

    fn write(&self, offset: u64, value: u8) -> io::Result<()> {
        self.with(|file| file.write_all_at(&[value], offset))
    }

    /// Calls `what` with the file. The descriptor stays open.
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

/// Decodes the owner of the window.
fn registrant(bytes: &[u8; BYTES]) -> Option<Registrant> {
    let token = match bytes[WINDOW as usize] {
        0 => return None,
        NOBODY => None,
        token => Some(u32::from(token) - 1),
    };
    let address =
        bytes[WINDOW_ADDRESS as usize..OLD_GUESTS as usize].try_into().map_or(0, u64::from_le_bytes);
    Some(Registrant { token, address })
}

/// Returns an identifier of this boot of the machine, which is never all zeros. If the kernel provides none,
/// all boots have the same identifier.
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
        assert_eq!(owners.tokens_in_use().unwrap(), 0);
        owners.set_in_use(63, true).unwrap();
        owners.set_in_use(5, true).unwrap();
        owners.set_in_use(6, false).unwrap();
        assert_eq!(owners.tokens_in_use().unwrap(), 1 << 63 | 1 << 5);
    }
}
