//! Pages for pinned allocations and for images.

use std::ptr;

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

#[derive(Debug)]
pub struct Pages {
    pub(super) start: usize,
    pub(super) bytes: usize,
}

impl Pages {
    /// Maps at least `bytes` of zeros. Returns `None` if the system has no memory.
    pub fn new(bytes: usize) -> Option<Self> {
        let bytes = bytes.checked_next_multiple_of(4096)?;
        // SAFETY: a new mapping at an address that the kernel chooses replaces no other mapping.
        let start = unsafe {
            mmap_anonymous(ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
        };
        Some(Self { start: start.ok()?.expose_provenance(), bytes })
    }

    pub const fn start(&self) -> usize {
        self.start
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        let start = ptr::with_exposed_provenance_mut(self.start);
        // SAFETY: the mapping belongs to this value, and every user of its address has freed it.
        if let Err(error) = unsafe { munmap(start, self.bytes) } {
            eprintln!("recording libcuda: unmap pinned memory: {error}");
        }
    }
}
