//! The part of the window that sessions share out among themselves: a first-fit allocator of
//! granules. Who owns what is each session's own list; this one knows only what is free.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use vgpu_wire::area::WINDOW_GRANULE;

use crate::memory::window::Window;
use crate::sync::lock;

/// Free ranges of the window, bytes by offset. Neighbours are always merged.
#[derive(Debug)]
pub(crate) struct Shares {
    window: Arc<Window>,
    free: Mutex<BTreeMap<u64, u64>>,
    bytes: u64,
}

impl Shares {
    /// Everything from `start` to the end of the window, in whole granules.
    pub(crate) fn new(window: Arc<Window>, start: u64) -> Self {
        let start = start.next_multiple_of(WINDOW_GRANULE);
        let bytes = window.bytes().saturating_sub(start) / WINDOW_GRANULE * WINDOW_GRANULE;
        let free = if bytes == 0 { BTreeMap::new() } else { BTreeMap::from([(start, bytes)]) };
        Self { window, free: Mutex::new(free), bytes }
    }

    /// Bytes that there are to be shared out.
    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes `bytes`, rounded up to granules: offset and bytes. The memory reads zeros.
    pub(crate) fn take(&self, bytes: u64) -> Option<(u64, u64)> {
        let bytes = bytes.max(1).checked_next_multiple_of(WINDOW_GRANULE)?;
        let offset = self.cut(bytes)?;
        if self.window.reserve(offset, bytes) {
            return Some((offset, bytes));
        }
        tracing::warn!(bytes, "the window's file has no room for what a guest asks for");
        self.give_back(offset, bytes);
        None
    }

    fn cut(&self, bytes: u64) -> Option<u64> {
        let mut free = lock(&self.free);
        let (&offset, &room) = free.iter().find(|&(_, &room)| room >= bytes)?;
        free.remove(&offset);
        if room > bytes {
            free.insert(offset + bytes, room - bytes);
        }
        Some(offset)
    }

    /// Takes back what [`Shares::take`] gave, cleared: the next owner must not see what was there.
    pub(crate) fn give_back(&self, mut offset: u64, mut bytes: u64) {
        self.window.clear(offset, bytes);
        let mut free = lock(&self.free);
        if let Some((&before, &room)) = free.range(..offset).next_back()
            && before + room == offset
        {
            free.remove(&before);
            offset = before;
            bytes += room;
        }
        if let Some(room) = free.remove(&(offset + bytes)) {
            bytes += room;
        }
        free.insert(offset, bytes);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shares(granules: u64) -> (tempfile::TempDir, Shares) {
        let dir = tempfile::tempdir().unwrap();
        let window =
            Arc::new(Window::create(&dir.path().join("w"), (granules + 1) * WINDOW_GRANULE).unwrap());
        (dir, Shares::new(window, 1))
    }

    #[test]
    fn all_of_it_can_be_taken_and_comes_back_whole() {
        let (_dir, shares) = shares(4);
        assert_eq!(shares.bytes(), 4 * WINDOW_GRANULE);
        assert_eq!(shares.take(4 * WINDOW_GRANULE), Some((WINDOW_GRANULE, 4 * WINDOW_GRANULE)));
        assert_eq!(shares.take(1), None);
        shares.give_back(WINDOW_GRANULE, 4 * WINDOW_GRANULE);
        assert_eq!(shares.take(u64::MAX), None);
        assert_eq!(shares.take(3 * WINDOW_GRANULE + 1), Some((WINDOW_GRANULE, 4 * WINDOW_GRANULE)));
    }

    proptest! {
        #[test]
        fn ranges_never_overlap_and_nothing_is_lost(steps in prop::collection::vec((0u64..6, any::<prop::sample::Index>()), 1..60)) {
            let (_dir, shares) = shares(16);
            let mut held: Vec<(u64, u64)> = Vec::new();
            for (granules, which) in steps {
                if granules == 0 && !held.is_empty() {
                    let (offset, bytes) = held.swap_remove(which.index(held.len()));
                    shares.give_back(offset, bytes);
                } else if let Some((offset, bytes)) = shares.take(granules * WINDOW_GRANULE) {
                    prop_assert!(offset >= WINDOW_GRANULE && offset + bytes <= 17 * WINDOW_GRANULE);
                    prop_assert!(held.iter().all(|&(o, b)| offset + bytes <= o || o + b <= offset));
                    held.push((offset, bytes));
                }
            }
            let used: u64 = held.iter().map(|&(_, bytes)| bytes).sum();
            let free: u64 = lock(&shares.free).values().sum();
            prop_assert_eq!(used + free, 16 * WINDOW_GRANULE);
            for (offset, bytes) in held {
                shares.give_back(offset, bytes);
            }
            prop_assert_eq!(lock(&shares.free).len(), 1);
        }
    }
}
