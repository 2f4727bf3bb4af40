//! Allocator of window memory, where the window is memory of this process.

use std::ops::Range;

use vgpu_wire::area::WINDOW_GRANULE;
use vgpu_wire::body::session::{WindowAlloc, WindowAllocReply};
use zerocopy::FromZeros;

use super::numbered::Numbered;
use crate::call::CallError;
use crate::status::OUT_OF_MEMORY;

/// A first-fit allocator for a range of the window, in granules.
#[derive(Debug)]
pub(super) struct WindowArena {
    range: Range<u64>,
    /// Start and length of the allocated parts.
    taken: Numbered<u64, u64>,
}

impl WindowArena {
    pub(super) fn new(range: Range<u64>) -> Self {
        Self { range, taken: Numbered::new() }
    }

    /// Executes a message that allocates a part.
    pub(super) fn allocate(&mut self, body: &WindowAlloc) -> Result<WindowAllocReply, CallError> {
        let (offset, bytes) = self.reserve(body.bytes).ok_or(CallError::Status(OUT_OF_MEMORY))?;
        let mut reply = WindowAllocReply::new_zeroed();
        reply.offset = offset;
        reply.bytes = bytes;
        Ok(reply)
    }

    /// Allocates `bytes`, rounded up to the granule. Returns start and length of the part.
    fn reserve(&mut self, bytes: u64) -> Option<(u64, u64)> {
        let bytes = bytes.max(1).checked_next_multiple_of(WINDOW_GRANULE)?;
        let mut start = self.range.start;
        for &(at, length) in self.taken.iter() {
            if at - start >= bytes {
                break;
            }
            start = at + length;
        }
        if self.range.end.checked_sub(start)? < bytes {
            return None;
        }
        self.taken.insert(start, bytes);
        Some((start, bytes))
    }

    pub(super) fn free(&mut self, start: u64) {
        self.taken.remove(start);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_do_not_overlap_and_come_back() {
        let mut arena = WindowArena::new(WINDOW_GRANULE..5 * WINDOW_GRANULE);
        assert_eq!(arena.reserve(1), Some((WINDOW_GRANULE, WINDOW_GRANULE)));
        assert_eq!(arena.reserve(2 * WINDOW_GRANULE), Some((2 * WINDOW_GRANULE, 2 * WINDOW_GRANULE)));
        assert_eq!(arena.reserve(WINDOW_GRANULE + 1), None);
        assert_eq!(arena.reserve(0), Some((4 * WINDOW_GRANULE, WINDOW_GRANULE)));
        arena.free(2 * WINDOW_GRANULE);
        assert_eq!(arena.reserve(WINDOW_GRANULE), Some((2 * WINDOW_GRANULE, WINDOW_GRANULE)));
        assert_eq!(arena.reserve(WINDOW_GRANULE), Some((3 * WINDOW_GRANULE, WINDOW_GRANULE)));
        assert_eq!(arena.reserve(u64::MAX), None);
    }
}
