//! Opens files whose path another user may have chosen. Anything but a regular file is rejected before it is
//! opened.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{CWD, FileType, Mode, OFlags, Stat, openat};
use rustix::io::Errno;

use crate::refusal::Refusal;
use crate::walk::status;

/// What a file is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The file is opened for reading.
    Read,
    /// The file is opened for writing from its start.
    Write,
    /// The file is opened for appending.
    Append,
    /// The file is opened for reading and writing.
    ReadWrite,
}

impl Access {
    pub(crate) fn flags(self) -> OFlags {
        match self {
            Self::Read => OFlags::RDONLY,
            Self::Write => OFlags::WRONLY,
            Self::Append => OFlags::WRONLY | OFlags::APPEND,
            Self::ReadWrite => OFlags::RDWR,
        }
    }
}

/// Opens a regular file of any owner for reading. Links are followed. Anything else is rejected without being
/// opened, so that no FIFO blocks the caller and no device sees an open. A lease of another process does not
/// block the caller either.
///
/// # Errors
/// Returns the error of the kernel, or [`Refusal::Kind`] in an error of the kind `InvalidInput`.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let found = openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let status = status(found.as_fd())?;
    regular(&status, || path.to_owned()).map_err(invalid)?;
    reopen(found.as_fd(), &status, Access::Read, |flags| openat(CWD, path, flags, Mode::empty()))
}

/// Reads a regular file of at most `most` bytes.
///
/// # Errors
/// Fails as [`open_regular`] does, or with [`Refusal::Large`].
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    // Files of /proc and /sys report no size, so the bytes read are counted.
    open_regular(path)?.take(most.saturating_add(1)).read_to_end(&mut content)?;
    if content.len() as u64 > most {
        return Err(invalid(Refusal::Large { path: path.to_owned(), most }.into()));
    }
    Ok(content)
}

/// Reads a regular file of at most `most` bytes of UTF-8.
///
/// # Errors
/// Fails as [`read`] does, or with an error of the kind `InvalidData` if the content is not UTF-8.
pub fn read_to_string(path: &Path, most: u64) -> io::Result<String> {
    String::from_utf8(read(path, most)?).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Rejects anything but a regular file.
pub(crate) fn regular(status: &Stat, path: impl Fn() -> PathBuf) -> io::Result<()> {
    let kind = match FileType::from_raw_mode(status.st_mode) {
        FileType::RegularFile => return Ok(()),
        FileType::Directory => "a directory",
        FileType::Symlink => "a symbolic link",
        FileType::Fifo => "a FIFO",
        FileType::Socket => "a socket",
        FileType::CharacterDevice => "a character device",
        FileType::BlockDevice => "a block device",
        FileType::Unknown => "something else",
    };
    Err(Refusal::Kind { path: path(), kind }.into())
}

/// Opens the file that an `O_PATH` descriptor refers to. Where /proc is not mounted, `by_name` opens it.
pub(crate) fn reopen(
    found: BorrowedFd<'_>,
    looked_at: &Stat,
    access: Access,
    by_name: impl FnOnce(OFlags) -> Result<OwnedFd, Errno>,
) -> io::Result<File> {
    // For a regular file, `O_NONBLOCK` only prevents waiting for the holder of a lease.
    let flags = access.flags() | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    match openat(CWD, format!("/proc/self/fd/{}", found.as_raw_fd()), flags, Mode::empty()) {
        Err(Errno::NOENT | Errno::NOTDIR) => open_unchanged(looked_at, flags, by_name),
        opened => Ok(opened?.into()),
    }
}

/// Opens a file by its name, and checks that it is the file whose status was read.
pub(crate) fn open_unchanged(
    looked_at: &Stat,
    flags: OFlags,
    by_name: impl FnOnce(OFlags) -> Result<OwnedFd, Errno>,
) -> io::Result<File> {
    let opened = by_name(flags)?;
    let now = status(opened.as_fd())?;
    if (now.st_dev, now.st_ino) != (looked_at.st_dev, looked_at.st_ino) {
        return Err(Errno::AGAIN.into());
    }
    Ok(opened.into())
}

/// Changes the kind of a refusal that does not concern permissions.
fn invalid(error: io::Error) -> io::Error {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<Refusal>()) {
        Some(refusal) => io::Error::new(io::ErrorKind::InvalidInput, refusal.clone()),
        None => error,
    }
}
