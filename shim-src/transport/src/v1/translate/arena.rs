//! Window memory where the window is this process's own: which parts of it are taken.

use std::ops::Range;

use vgpu_wire::area::WINDOW_GRANULE;
use vgpu_wire::body::session::{WindowAlloc, WindowAllocReply};
use zerocopy::FromZeros;

use super::numbered::Numbered;
use crate::status::OUT_OF_MEMORY;
use crate::v1::call::Failure;

/// An allocator of parts of a range, in granules, first fit.
#[derive(Debug)]
pub(super) struct Arena {
    range: Range<u64>,
    /// Start and length of the parts that are taken.
    taken: Numbered<u64, u64>,
}

impl Arena {
    pub(super) fn new(range: Range<u64>) -> Self {
        Self { range, taken: Numbered::new() }
    }

    /// Answers a message that asks for a part.
    pub(super) fn allocate(&mut self, body: &WindowAlloc) -> Result<WindowAllocReply, Failure> {
        let (offset, bytes) = self.take(body.bytes).ok_or(Failure::Status(OUT_OF_MEMORY))?;
        let mut reply = WindowAllocReply::new_zeroed();
        reply.offset = offset;
        reply.bytes = bytes;
        Ok(reply)
    }

    /// Takes `bytes`, rounded up to the granule. Returns start and length of the part.
    fn take(&mut self, bytes: u64) -> Option<(u64, u64)> {
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

    pub(super) fn give_back(&mut self, start: u64) {
        self.taken.remove(start);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_do_not_overlap_and_come_back() {
        let mut arena = Arena::new(WINDOW_GRANULE..5 * WINDOW_GRANULE);
        assert_eq!(arena.take(1), Some((WINDOW_GRANULE, WINDOW_GRANULE)));
        assert_eq!(arena.take(2 * WINDOW_GRANULE), Some((2 * WINDOW_GRANULE, 2 * WINDOW_GRANULE)));
        assert_eq!(arena.take(WINDOW_GRANULE + 1), None);
        assert_eq!(arena.take(0), Some((4 * WINDOW_GRANULE, WINDOW_GRANULE)));
        arena.give_back(2 * WINDOW_GRANULE);
        assert_eq!(arena.take(WINDOW_GRANULE), Some((2 * WINDOW_GRANULE, WINDOW_GRANULE)));
        assert_eq!(arena.take(WINDOW_GRANULE), Some((3 * WINDOW_GRANULE, WINDOW_GRANULE)));
        assert_eq!(arena.take(u64::MAX), None);
    }
}
