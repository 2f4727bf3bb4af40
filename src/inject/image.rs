//! The launcher's own file, from which the kernel copies the embedded libraries.
//!
//! Writing a library from the launcher's memory would first map all of its pages, sixteen per fault, and
//! unmap them at exec. A copy from file to file does not map them.

use std::fs::File;
use std::io;

use nix::libc;
use rustix::fs::sendfile;

use crate::program::elf::Segments;

/// Path of the running program's file in `/proc`. It stays valid if the program's own path is replaced.
const PATH: &str = "/proc/self/exe";

/// File of the running launcher, with its segments.
#[derive(Debug)]
pub struct LauncherImage {
    file: File,
    segments: Segments,
}

impl LauncherImage {
    /// Opens the launcher's file. Returns `None` if this user may only execute it.
    pub fn open() -> Option<Self> {
        let file = File::open(PATH).ok()?;
        let segments = Segments::read(&file).ok()?;
        Some(Self { file, segments })
    }

    /// Copies `bytes`, which are part of the file, to the end of `to` and returns the number of copied bytes.
    /// It is lower than the size if the kernel stops copying or the file does not contain the bytes.
    pub fn send(&self, bytes: &'static [u8], to: &File) -> usize {
        let Some(mut offset) = self.offset(bytes) else { return 0 };
        let mut sent = 0;
        while let rest = bytes.len() - sent
            && rest > 0
        {
            match sendfile(to, &self.file, Some(&mut offset), rest) {
                Ok(0) => break,
                Ok(more) => sent += more,
                Err(error) if io::Error::from(error).kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        sent
    }

    /// Returns the offset of `bytes` in the file.
    fn offset(&self, bytes: &'static [u8]) -> Option<u64> {
        self.segments.offset(program_headers(), bytes.as_ptr().addr() as u64, bytes.len() as u64)
    }
}

/// Returns the address of this program's headers. If the loader was told to run this program, as in `ld.so
/// vgpu-run`, the headers are the loader's, [`PATH`] names the loader as well, and no byte of this program is
/// found in it.
fn program_headers() -> u64 {
    // SAFETY: the call reads a vector that the kernel has written before the process began.
    unsafe { libc::getauxval(libc::AT_PHDR) }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::embedded::OBJECTS;

    #[test]
    fn the_file_holds_what_is_embedded() {
        let image = LauncherImage::open().unwrap();
        for object in OBJECTS {
            let mut found = vec![0; object.bytes.len()];
            image.file.read_exact_at(&mut found, image.offset(object.bytes).unwrap()).unwrap();
            assert!(found == object.bytes, "{}", object.soname);
            let mut copy = tempfile::tempfile().unwrap();
            assert_eq!(image.send(object.bytes, &copy), object.bytes.len());
            io::Seek::rewind(&mut copy).unwrap();
            copy.read_to_end(&mut found).unwrap();
            assert!(found[object.bytes.len()..] == *object.bytes, "{}", object.soname);
        }
    }

    #[test]
    fn what_the_file_does_not_hold_is_left_to_the_caller() {
        let image = LauncherImage::open().unwrap();
        let elsewhere: &'static [u8] = Vec::leak(vec![1; 4096]);
        let copy = tempfile::tempfile().unwrap();
        assert_eq!(image.send(elsewhere, &copy), 0);
        assert_eq!(image.send(&[], &copy), 0);
        assert_eq!(copy.metadata().unwrap().len(), 0);
    }

    #[test]
    fn a_file_that_takes_nothing_is_left_to_the_caller() {
        let image = LauncherImage::open().unwrap();
        let closed = File::open("/proc/self/exe").unwrap();
        assert_eq!(image.send(OBJECTS[0].bytes, &closed), 0);
    }
}
