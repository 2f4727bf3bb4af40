//! Directories of small files, read in as few system calls as possible and without heap memory: every start
//! of a program that could use a GPU searches one.

use core::ffi::CStr;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// An open directory.
#[derive(Debug)]
pub(crate) struct Folder(OwnedFd);

/// Name of an entry of a directory.
pub(crate) type Name = CStr;

/// Offset of the name in a `linux_dirent64`, after two numbers of 8 bytes, its length, and a type.
const HEAD: usize = 19;
/// Offset of the length in a `linux_dirent64`.
const LENGTH: usize = 16;
/// Maximum length of a path below the directory, in bytes.
const PATH: usize = 320;

fn made(number: libc::c_int) -> io::Result<OwnedFd> {
    if number < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the number was made just now and belongs to nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

impl Folder {
    /// Opens a directory.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let path = CString::new(path.as_os_str().as_bytes()).map_err(|_| io::ErrorKind::InvalidFilename)?;
        // SAFETY: the path ends in a zero.
        made(unsafe { libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC) })
            .map(Self)
    }

    /// Calls `what` with the name of each entry.
    pub(crate) fn each(&self, mut what: impl FnMut(&Name)) -> io::Result<()> {
        let mut buffer = [0u8; 2048];
        loop {
            // The C library's `readdir` takes 32 KiB of the heap. SAFETY: the kernel writes at most the
            // buffer's length.
            let got = unsafe {
                libc::syscall(libc::SYS_getdents64, self.0.as_raw_fd(), buffer.as_mut_ptr(), buffer.len())
            };
            let bytes = match usize::try_from(got) {
                Ok(0) => return Ok(()),
                Ok(bytes) => bytes,
                Err(_) => return Err(io::Error::last_os_error()),
            };
            let mut rest = &buffer[..bytes];
            while let Some(&[low, high]) = rest.get(LENGTH..LENGTH + 2) {
                let length = usize::from(u16::from_le_bytes([low, high]));
                let Some(entry) = rest.get(HEAD..length) else { break };
                if let Ok(name) = CStr::from_bytes_until_nul(entry) {
                    what(name);
                }
                rest = &rest[length..];
            }
        }
    }

    /// Reads a file of a subdirectory in one call. Returns the number of bytes read, at most the buffer's
    /// length.
    pub(crate) fn read(&self, name: &Name, file: &str, buffer: &mut [u8]) -> io::Result<usize> {
        let mut path = [0u8; PATH];
        let parts = [name.to_bytes(), b"/", file.as_bytes()];
        let mut rest = &mut path[..PATH - 1];
        for part in parts {
            let (to, behind) = rest.split_at_mut_checked(part.len()).ok_or(io::ErrorKind::InvalidFilename)?;
            to.copy_from_slice(part);
            rest = behind;
        }
        // In a directory that VGPU_SYSFS names, the file may be a FIFO. Opening it must not block.
        let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY;
        // SAFETY: the path ends in a zero, for the last byte of the array is never written.
        let number = unsafe { libc::openat(self.0.as_raw_fd(), path.as_ptr().cast(), flags) };
        let file = made(number)?;
        loop {
            // A raw call, for the C library's is a cancellation point. SAFETY: the kernel writes at most the
            // buffer's length.
            let got =
                unsafe { libc::syscall(libc::SYS_read, file.as_raw_fd(), buffer.as_mut_ptr(), buffer.len()) };
            match usize::try_from(got) {
                Ok(bytes) => return Ok(bytes),
                Err(_) => match io::Error::last_os_error() {
                    error if error.raw_os_error() == Some(libc::EINTR) => {}
                    error => return Err(error),
                },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_names_are_seen_and_files_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let expected: Vec<String> = (0..200).map(|i| format!("0000:00:{i:02x}.0")).collect();
        for name in &expected {
            std::fs::create_dir(dir.path().join(name)).unwrap();
            std::fs::write(dir.path().join(name).join("vendor"), name).unwrap();
        }
        let folder = Folder::open(dir.path()).unwrap();
        let mut names = Vec::new();
        let mut wrong = 0;
        folder
            .each(|name| {
                let text = name.to_str().unwrap();
                if text.starts_with('.') {
                    return;
                }
                let mut buffer = [0; 32];
                let bytes = folder.read(name, "vendor", &mut buffer).unwrap();
                wrong += usize::from(&buffer[..bytes] != name.to_bytes());
                names.push(text.to_owned());
            })
            .unwrap();
        names.sort();
        assert_eq!((names, wrong), (expected, 0));
    }

    #[test]
    fn what_is_not_there_or_cannot_be_named_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let missing = Folder::open(&dir.path().join("x")).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        let folder = Folder::open(dir.path()).unwrap();
        let mut buffer = [0; 32];
        let missing = folder.read(c"x", "vendor", &mut buffer).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        let long = "x".repeat(PATH);
        assert_eq!(folder.read(c"x", &long, &mut buffer).unwrap_err().kind(), io::ErrorKind::InvalidFilename);
    }
}
