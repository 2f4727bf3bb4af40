//! Descriptors in a process that is not ours.
//!
//! Programs close, duplicate and reuse low descriptors; some close all they do not know. So those that a
//! session needs are moved high, close on exec, and are known by the file behind the number: before a use
//! that matters [`Descriptor::intact`] asks whether the number still names our file, and a descriptor that is
//! somebody else's by now is neither used nor closed.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};

/// Where to look for a free number, best first. A program whose limit is lower keeps the number it got.
const FLOORS: [libc::c_int; 3] = [700, 200, 60];

/// A file known by its number and by its identity.
#[derive(Debug)]
pub struct Descriptor {
    number: RawFd,
    identity: Identity,
}

/// What tells one file from every other: device and inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    device: u64,
    inode: u64,
}

impl Descriptor {
    /// Takes over a descriptor, moves it high and makes it close on exec. The number it had is closed, which
    /// drops this process's POSIX locks on the file: there must be none yet.
    pub fn adopt(owned: OwnedFd) -> io::Result<Self> {
        let (identity, _) = identify(owned.as_raw_fd())?;
        let moved = FLOORS.iter().find_map(|&floor| {
            // SAFETY: duplicates a descriptor that `owned` keeps open.
            let number = unsafe { libc::fcntl(owned.as_raw_fd(), libc::F_DUPFD_CLOEXEC, floor) };
            // SAFETY: the number was made just now and belongs to nobody else.
            (number >= 0).then(|| unsafe { OwnedFd::from_raw_fd(number) })
        });
        Ok(Self { number: moved.unwrap_or(owned).into_raw_fd(), identity })
    }

    /// Takes over a descriptor as it is: for one that is only read now and then, and is not missed when the
    /// program closes it. To move it high would have the kernel make room for 700 numbers in a process that
    /// may only look.
    pub(crate) fn adopt_in_place(owned: OwnedFd) -> io::Result<Self> {
        let (identity, _) = identify(owned.as_raw_fd())?;
        Ok(Self { number: owned.into_raw_fd(), identity })
    }

    /// The number. Only good while [`Descriptor::intact`].
    pub fn number(&self) -> RawFd {
        self.number
    }

    /// The file's identity.
    pub(crate) fn identity(&self) -> Identity {
        self.identity
    }

    /// Whether the number still names this file.
    pub fn intact(&self) -> bool {
        identify(self.number).is_ok_and(|(identity, _)| identity == self.identity)
    }

    /// Length of the file in bytes.
    pub(crate) fn bytes(&self) -> io::Result<u64> {
        identify(self.number).map(|(_, bytes)| bytes)
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        if self.intact() {
            // SAFETY: the number names the file that this value owns.
            unsafe { libc::close(self.number) };
        }
    }
}

/// Identity and length of what a number names.
fn identify(number: RawFd) -> io::Result<(Identity, u64)> {
    let mut stat = core::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the kernel writes the whole structure when it returns 0; any number may be asked for.
    if unsafe { libc::fstat(number, stat.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `fstat` has succeeded.
    let stat = unsafe { stat.assume_init() };
    Ok((Identity { device: stat.st_dev, inode: stat.st_ino }, u64::try_from(stat.st_size).unwrap_or(0)))
}

impl Identity {
    /// The identity of the file at a path, without opening it.
    pub(crate) fn from_path(path: &std::path::Path) -> io::Result<Self> {
        use std::os::unix::fs::MetadataExt;
        let metadata = std::fs::metadata(path)?;
        Ok(Self { device: metadata.dev(), inode: metadata.ino() })
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn moves_high_and_closes_on_exec() {
        let descriptor = Descriptor::adopt(File::open("/proc/self/exe").unwrap().into()).unwrap();
        assert!(descriptor.number() >= 60, "{}", descriptor.number());
        // SAFETY: asks for the flags of a number.
        let flags = unsafe { libc::fcntl(descriptor.number(), libc::F_GETFD) };
        assert_eq!(flags & libc::FD_CLOEXEC, libc::FD_CLOEXEC);
        assert!(descriptor.intact());
    }

    #[test]
    fn a_number_that_somebody_reused_is_left_alone() {
        let descriptor = Descriptor::adopt(File::open("/proc/self/exe").unwrap().into()).unwrap();
        let number = descriptor.number();
        let other = File::open("/dev/null").unwrap();
        // SAFETY: what a program does that takes a number without asking.
        assert_eq!(unsafe { libc::dup2(other.as_raw_fd(), number) }, number);
        assert!(!descriptor.intact());
        drop(descriptor);
        // SAFETY: asks for the flags of a number.
        assert!(unsafe { libc::fcntl(number, libc::F_GETFD) } >= 0, "closed somebody else's descriptor");
        // SAFETY: closes what `dup2` made above.
        unsafe { libc::close(number) };
    }
}
