//! The device's own registers on the simulated bus, as the file `resource0_ro` that the device's process
//! keeps up to date: reading a device's state and facts takes one system call and wakes no process.
//!
//! The device's process holds a lock (`flock`) on the file. The kernel drops it when that process dies,
//! however it dies, so a process that gets the lock has found the file of a dead device. A guest holds the
//! lock shared, and only for a moment, so that guests do not mistake each other for devices.

use std::io;
use std::path::Path;

use vgpu_wire::facts::DeviceFacts;
use vgpu_wire::registers::{V2_FACTS, V2_PAGE_BYTES};
use zerocopy::FromBytes;

use crate::descriptor::Descriptor;

/// The open file of the page.
#[derive(Debug)]
pub(crate) struct Page(Descriptor);

impl Page {
    /// Opens the page in a function's directory and reads it. Returns `None` if its device has none.
    ///
    /// # Errors
    /// Fails with `ConnectionRefused` if the device's process is dead.
    pub(crate) fn open(function: &Path, values: &mut Values) -> io::Result<Option<Self>> {
        let page = match std::fs::File::open(function.join("resource0_ro")) {
            Ok(file) => Self(Descriptor::adopt_in_place(file.into())?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        page.fill(values)?;
        Ok(Some(page))
    }

    /// Returns whether the registers at these offsets are on the page.
    pub(crate) fn contains(offset: u32) -> bool {
        offset < V2_PAGE_BYTES && offset.is_multiple_of(4)
    }

    /// Reads all registers of the page. Returns false if the program has closed the descriptor.
    ///
    /// # Errors
    /// Fails with `ConnectionRefused` if the device's process is dead.
    pub(crate) fn read(&self, values: &mut Values) -> io::Result<bool> {
        if !self.0.intact() {
            return Ok(false);
        }
        self.fill(values).map(|()| true)
    }

    fn fill(&self, values: &mut Values) -> io::Result<()> {
        if !self.locked() {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        // SAFETY: the kernel writes at most the array's length.
        let got = unsafe { libc::pread(self.0.number(), values.0.as_mut_ptr().cast(), values.0.len(), 0) };
        if got == values.0.len() as isize { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    /// Returns whether the device's process is alive. If that cannot be determined it counts as alive, and an
    /// access to the socket decides.
    fn locked(&self) -> bool {
        // SAFETY: asks for a lock on a descriptor of this value.
        if unsafe { libc::flock(self.0.number(), libc::LOCK_SH | libc::LOCK_NB) } != 0 {
            return true;
        }
        // SAFETY: gives back the lock taken above.
        unsafe { libc::flock(self.0.number(), libc::LOCK_UN) };
        false
    }
}

/// Registers of a page, as they were when it was read.
pub(crate) struct Values([u8; V2_PAGE_BYTES as usize]);

impl Values {
    /// Creates values that have not been read yet, all zero.
    pub(crate) const fn new() -> Self {
        Self([0; V2_PAGE_BYTES as usize])
    }

    /// Returns the device's facts, or `None` if they are in the window only.
    pub(crate) fn facts(&self) -> Option<Box<DeviceFacts>> {
        let (facts, _) = DeviceFacts::read_from_prefix(self.0.get(V2_FACTS as usize..)?).ok()?;
        (facts.total_bytes != 0).then(|| Box::new(facts))
    }

    /// Returns the register at an offset that [`Page::contains`].
    pub(crate) fn at(&self, offset: u32) -> u32 {
        let at = offset as usize;
        self.0.get(at..at + 4).map_or(0, |word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_read_while_somebody_holds_its_lock() {
        let dir = tempfile::tempdir().unwrap();
        let mut values = Values::new();
        assert!(Page::open(dir.path(), &mut values).unwrap().is_none());
        let mut bytes = vec![0; V2_PAGE_BYTES as usize];
        bytes[0x24..0x28].copy_from_slice(&7u32.to_le_bytes());
        std::fs::write(dir.path().join("resource0_ro"), &bytes).unwrap();
        let refused = Page::open(dir.path(), &mut values).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        let device = std::fs::File::open(dir.path().join("resource0_ro")).unwrap();
        device.lock().unwrap();
        let page = Page::open(dir.path(), &mut values).unwrap().unwrap();
        assert_eq!((values.at(0x24), values.at(0x20), values.at(u32::MAX - 3)), (7, 0, 0));
        assert!(values.facts().is_none(), "a device that keeps them in the window alone");
        let at = V2_FACTS as usize + core::mem::offset_of!(DeviceFacts, total_bytes);
        bytes[at..at + 8].copy_from_slice(&9u64.to_le_bytes());
        std::fs::write(dir.path().join("resource0_ro"), &bytes).unwrap();
        assert!(page.read(&mut values).unwrap());
        assert_eq!(values.facts().unwrap().total_bytes, 9);
        drop(device);
        assert_eq!(page.read(&mut values).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    }
}
