//! The image of a link, in pages that can be protected so that every later access faults.

use std::ptr;

use rustix::mm::{MprotectFlags, mprotect};

use super::pages::Pages;
use crate::memory::AddressRange;

#[derive(Debug)]
pub struct LinkedImage {
    pages: Pages,
    bytes: usize,
}

impl LinkedImage {
    /// Copies an image. Returns `None` if the system has no memory.
    pub fn new(image: &[u8]) -> Option<Self> {
        let pages = Pages::new(image.len().max(1))?;
        let to: *mut u8 = ptr::with_exposed_provenance_mut(pages.start());
        // SAFETY: the pages were just created, hold at least as many bytes, and their address is known to
        // nobody else.
        unsafe { ptr::copy_nonoverlapping(image.as_ptr(), to, image.len()) };
        Some(Self { pages, bytes: image.len() })
    }

    pub const fn range(&self) -> AddressRange {
        AddressRange::new(self.pages.start() as u64, self.bytes as u64)
    }

    /// Protects the image. Its addresses are never used again, and an access to them faults.
    pub fn end(self) -> AddressRange {
        let (range, start) = (self.range(), ptr::with_exposed_provenance_mut(self.pages.start));
        // SAFETY: the pages belong to this image, and the program may no longer access them.
        if let Err(error) = unsafe { mprotect(start, self.pages.bytes, MprotectFlags::empty()) } {
            eprintln!("recording libcuda: protect a linked image: {error}");
        }
        // Pages that are never unmapped are not reused for anything else.
        std::mem::forget(self);
        range
    }
}
