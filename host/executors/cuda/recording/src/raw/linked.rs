//! The image of a link: pages that can be taken away so that every later access is a fault.

use std::ptr;

use rustix::mm::{MprotectFlags, mprotect};

use super::pages::Pages;
use crate::memory::Range;

/// An image that the library owns.
#[derive(Debug)]
pub struct LinkedImage {
    pages: Pages,
    bytes: usize,
}

impl LinkedImage {
    /// Copies an image. `None` where the system has no more memory.
    pub fn new(image: &[u8]) -> Option<Self> {
        let pages = Pages::new(image.len().max(1))?;
        let to: *mut u8 = ptr::with_exposed_provenance_mut(pages.start());
        // SAFETY: the pages were made a moment ago, hold at least as many bytes, and nobody has their
        // address.
        unsafe { ptr::copy_nonoverlapping(image.as_ptr(), to, image.len()) };
        Some(Self { pages, bytes: image.len() })
    }

    /// Its addresses.
    pub const fn range(&self) -> Range {
        Range::new(self.pages.start() as u64, self.bytes as u64)
    }

    /// Ends the image. Its addresses are never used again, and whoever reads them gets a fault.
    pub fn end(self) -> Range {
        let (range, start) = (self.range(), ptr::with_exposed_provenance_mut(self.pages.start));
        // SAFETY: the pages are this image's own, and the program has no right to them any more.
        if let Err(error) = unsafe { mprotect(start, self.pages.bytes, MprotectFlags::empty()) } {
            eprintln!("recording libcuda: take a linked image away: {error}");
        }
        // Pages that are kept are not given to anybody else.
        std::mem::forget(self);
        range
    }
}
