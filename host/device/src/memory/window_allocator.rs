//! Allocator of the part of the window after the channels' areas, in granules. Each session keeps a list of
//! the memory that it owns, and the allocator only knows what is free.

use std::sync::{Arc, Mutex};

use vgpu_wire::area::WINDOW_GRANULE;

use crate::memory::address_space::{AddressSpace, Granularity};
use crate::memory::window::Window;
use crate::sync::lock;

const GRANULES: Granularity = Granularity { least: WINDOW_GRANULE, gap: 0, large: WINDOW_GRANULE };

/// First-fit allocator of window memory.
#[derive(Debug)]
pub(crate) struct WindowAllocator {
    window: Arc<Window>,
    free: Mutex<AddressSpace>,
    bytes: u64,
}

impl WindowAllocator {
    /// Makes an allocator of all whole granules from `start` to the end of the window.
    pub(crate) fn new(window: Arc<Window>, start: u64) -> Self {
        let start = start.next_multiple_of(WINDOW_GRANULE);
        let bytes = window.bytes().saturating_sub(start) / WINDOW_GRANULE * WINDOW_GRANULE;
        // Offsets that count as used before are allocated again at once, lowest first.
        let mut free = AddressSpace::new(start + bytes, 0, GRANULES);
        if bytes > 0 {
            free.extend_front(bytes);
        }
        Self { window, free: Mutex::new(free), bytes }
    }

    /// Returns the number of bytes that the allocator manages, whether free or not.
    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Allocates `bytes`, rounded up to granules. Returns offset and size of the memory, which reads zeros.
    pub(crate) fn allocate(&self, bytes: u64) -> Option<(u64, u64)> {
        let bytes = bytes.max(1).checked_next_multiple_of(WINDOW_GRANULE)?;
        let offset = lock(&self.free).allocate(bytes)?;
        if self.window.reserve(offset, bytes) {
            return Some((offset, bytes));
        }
        tracing::warn!(bytes, "the window's file has no room for a guest's allocation");
        self.free(offset, bytes);
        None
    }

    /// Frees memory that was allocated with this offset and size. It is cleared, so that its next owner does
    /// not see the former contents.
    pub(crate) fn free(&self, offset: u64, bytes: u64) {
        self.window.clear(offset, bytes);
        lock(&self.free).free(offset, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_window_can_be_allocated_and_is_first_fit() {
        let dir = tempfile::tempdir().unwrap();
        let window = Window::create(&dir.path().join("w"), 5 * WINDOW_GRANULE).unwrap();
        let allocator = WindowAllocator::new(Arc::new(window), 1);
        assert_eq!(allocator.bytes(), 4 * WINDOW_GRANULE);
        let whole = Some((WINDOW_GRANULE, 4 * WINDOW_GRANULE));
        assert_eq!(allocator.allocate(4 * WINDOW_GRANULE), whole);
        assert_eq!(allocator.allocate(1), None);
        allocator.free(WINDOW_GRANULE, 4 * WINDOW_GRANULE);
        assert_eq!(allocator.allocate(u64::MAX), None);
        let granule = |index| Some((index * WINDOW_GRANULE, WINDOW_GRANULE));
        assert_eq!((allocator.allocate(1), allocator.allocate(0)), (granule(1), granule(2)));
        allocator.free(WINDOW_GRANULE, WINDOW_GRANULE);
        assert_eq!(allocator.allocate(WINDOW_GRANULE), granule(1));
        for index in [1, 2] {
            allocator.free(index * WINDOW_GRANULE, WINDOW_GRANULE);
        }
        assert_eq!(allocator.allocate(3 * WINDOW_GRANULE + 1), whole);
    }
}
