//! Descriptors in a process that belongs to another program.
//!
//! Programs close, duplicate and reuse low descriptors; some close all that they did not open. So the
//! descriptors that a session needs get high numbers, are closed on exec, and are recognised by the file
//! behind the number: before a use that matters, [`Descriptor::intact`] checks whether the number still names
//! the same file. A descriptor that names another file is neither used nor closed.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};

/// Lowest numbers to try for a descriptor, best first. A program whose limit is lower keeps the original
/// number.
const FLOORS: [libc::c_int; 3] = [700, 200, 60];

/// A descriptor together with the identity of its file.
#[derive(Debug)]
pub struct Descriptor {
    number: RawFd,
    identity: Identity,
}

/// Identity of a file: its device and inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    device: u64,
    inode: u64,
}

impl Descriptor {
    /// Takes over a descriptor, moves it high and makes it close on exec. The old number is closed, which
    /// drops this process's POSIX locks on the file, so it must not have any yet.
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

    /// Takes over a descriptor with its number, for one that is read rarely and may be closed by the program.
    /// For a high number the kernel would allocate room for 700 descriptors, in a process that may only list
    /// devices.
    pub(crate) fn adopt_in_place(owned: OwnedFd) -> io::Result<Self> {
        let (identity, _) = identify(owned.as_raw_fd())?;
        Ok(Self { number: owned.into_raw_fd(), identity })
    }

    /// Returns the number, which is valid only while [`Descriptor::intact`] returns true.
    pub fn number(&self) -> RawFd {
        self.number
    }

    /// Returns the file's identity.
    pub(crate) fn identity(&self) -> Identity {
        self.identity
    }

    /// Returns whether the number still names this file.
    pub fn intact(&self) -> bool {
        identify(self.number).is_ok_and(|(identity, _)| identity == self.identity)
    }

    /// Returns the length of the file in bytes.
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

/// Returns identity and length of the file with this number.
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
    /// Returns the identity of the file that a number names.
    pub(crate) fn from_number(number: RawFd) -> io::Result<Self> {
        identify(number).map(|(identity, _)| identity)
    }

    /// Returns the identity of the file at a path, without opening it.
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
