//! Allocator of the part of the window after the channels' areas, in granules. Each session keeps a list of
//! the memory that it owns, and the allocator only knows what is free.

use std::sync::{Arc, Mutex};

use vgpu_wire::area::WINDOW_GRANULE;

use crate::memory::address_space::{AddressSpace, Granularity};
use crate::memory::window::Window;
use crate::sync::lock;

const GRANULES: Granularity = Granularity { least: WINDOW_GRANULE, gap: 0, large: WINDOW_GRANULE };

/// Returns the free space from `start` to the end of a window of `window` bytes, and its size.
pub(crate) fn free_space(window: u64, start: u64) -> (AddressSpace, u64) {
    let start = start.next_multiple_of(WINDOW_GRANULE);
    let bytes = window.saturating_sub(start) / WINDOW_GRANULE * WINDOW_GRANULE;
    // Offsets that count as used before are allocated again at once, lowest first.
    let mut free = AddressSpace::new(start + bytes, 0, GRANULES);
    if bytes > 0 {
        free.extend_front(bytes);
    }
    (free, bytes)
}

/// Takes a range that was allocated before, out of the free space of a window. Returns false if it is not
/// free, or not of whole granules.
pub(crate) fn take_range(free: &mut AddressSpace, offset: u64, bytes: u64) -> bool {
    bytes > 0 && bytes.is_multiple_of(WINDOW_GRANULE) && free.allocate_at(offset, bytes) == Some(offset)
}

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
        let (free, bytes) = free_space(window.bytes(), start);
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

    /// Takes a range that was allocated before the device's state was saved. Its contents stay. Returns false
    /// if it is not free.
    pub(crate) fn take(&self, offset: u64, bytes: u64) -> bool {
        take_range(&mut lock(&self.free), offset, bytes)
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
    use proptest::prelude::*;

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

    proptest! {
        /// An allocator is nothing but the ranges that were taken.
        #[test]
        fn an_allocator_is_rebuilt_from_what_sessions_own(
            steps in prop::collection::vec((1u64..6, any::<prop::sample::Index>(), any::<bool>()), 1..60)
        ) {
            let new = || {
                let window = Window::anonymous(40 * WINDOW_GRANULE).unwrap();
                WindowAllocator::new(Arc::new(window), 3 * WINDOW_GRANULE)
            };
            let allocator = new();
            let mut owned: Vec<(u64, u64)> = Vec::new();
            for (granules, which, free) in steps {
                if free && !owned.is_empty() {
                    let (offset, bytes) = owned.swap_remove(which.index(owned.len()));
                    allocator.free(offset, bytes);
                } else {
                    owned.extend(allocator.allocate(granules * WINDOW_GRANULE));
                }
            }
            let rebuilt = new();
            for &(offset, bytes) in &owned {
                prop_assert!(rebuilt.take(offset, bytes));
                prop_assert!(!rebuilt.take(offset, WINDOW_GRANULE), "it is taken");
            }
            prop_assert_eq!(&*lock(&rebuilt.free), &*lock(&allocator.free));
            for (offset, bytes) in
                [(0, WINDOW_GRANULE), (40 * WINDOW_GRANULE, WINDOW_GRANULE), (!0xffff, 1 << 20)]
            {
                prop_assert!(!rebuilt.take(offset, bytes));
            }
            prop_assert!(!rebuilt.take(39 * WINDOW_GRANULE, 0) && !rebuilt.take(39 * WINDOW_GRANULE, 4096));
        }
    }
}
