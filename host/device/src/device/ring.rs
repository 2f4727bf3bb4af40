//! The host's end of a ring, which copies messages out of shared memory and separates them. The returned
//! bytes are in private memory, so that the guest cannot change them any more.

use std::ops::Range;
use std::sync::atomic::Ordering;

use vgpu_wire::{DecodeError, Header, MESSAGE_ALIGN, area};

use crate::memory::window::Window;
use crate::session::violation::Violation;

/// Number of bytes copied at once unless a message is longer. They fit the first-level cache.
const CHUNK: u64 = 0x2000;

/// Reads the messages of one ring.
#[derive(Debug)]
pub(crate) struct Ring {
    /// Offset of the channel's area in the window.
    area: u64,
    /// Number of bytes of the ring that have been returned as messages.
    head: u64,
    /// Private copy of a part of the ring, [`area::MESSAGE_MAX`] bytes long.
    private: Box<[u8]>,
    /// Start of the bytes in `private` that have been copied but not returned as messages.
    start: usize,
    end: usize,
}

impl Ring {
    pub(crate) fn new(area: u64) -> Self {
        let private = vec![0; area::MESSAGE_MAX as usize].into_boxed_slice();
        Self { area, head: 0, private, start: 0, end: 0 }
    }

    /// Makes the reader of a ring of which `head` bytes have been returned as messages.
    pub(crate) fn restore(area: u64, head: u64) -> Self {
        Self { head, ..Self::new(area) }
    }

    /// Puts a message back that was taken from this ring before the session was restored. Returns its range
    /// in private memory, which is valid until [`Ring::next`] is called.
    pub(crate) fn put_back(&mut self, message: &[u8]) -> Range<usize> {
        self.private[..message.len()].copy_from_slice(message);
        0..message.len()
    }

    /// Returns the number of bytes that have been returned as messages.
    pub(crate) const fn head(&self) -> u64 {
        self.head
    }

    /// Returns whether the guest has published messages since the last read. Cheap enough to poll in a loop.
    #[inline]
    pub(crate) fn has_news(&self, window: &Window) -> bool {
        self.load_tail(window) != self.head
    }

    #[inline]
    fn load_tail(&self, window: &Window) -> u64 {
        window.u64_at(self.area + area::SUBMIT + area::SUBMIT_TAIL).load(Ordering::Acquire)
    }

    /// Reads the tail that the guest has published, and checks it.
    pub(crate) fn tail(&self, window: &Window) -> Result<u64, Violation> {
        let tail = self.load_tail(window);
        if tail.is_multiple_of(MESSAGE_ALIGN) && tail.wrapping_sub(self.head) <= area::RING_BYTES {
            Ok(tail)
        } else {
            Err(Violation::Tail { tail, head: self.head })
        }
    }

    /// Returns the range in private memory of the next message before `tail`, which [`Ring::tail`] returned,
    /// or `None` if all messages are read. The range is valid until the next call. Its length is the one that
    /// the header states, and lies within the ring. Nothing else of the message has been checked.
    pub(crate) fn next(&mut self, window: &Window, tail: u64) -> Result<Option<Range<usize>>, Violation> {
        if self.head == tail {
            return Ok(None);
        }
        if self.start == self.end {
            self.refill(window, tail, CHUNK);
        }
        let mut bytes = self.length(tail)?;
        if bytes as usize > self.end - self.start {
            // The header is read again with the rest of the message, because it may have changed.
            self.refill(window, tail, area::MESSAGE_MAX);
            bytes = self.length(tail)?;
        }
        let message = self.start..self.start + bytes as usize;
        self.start = message.end;
        self.head += u64::from(bytes);
        Ok(Some(message))
    }

    /// Returns the bytes of the message that [`Ring::next`] returned last.
    pub(crate) fn bytes(&self, message: Range<usize>) -> &[u8] {
        &self.private[message]
    }

    /// Returns the length that the first header in private memory states.
    fn length(&self, tail: u64) -> Result<u32, Violation> {
        // Private memory holds multiples of 16 bytes, so it contains a whole header.
        let header = &self.private[self.start..self.start + size_of::<Header>()];
        let bytes = u32::from_le_bytes([header[4], header[5], header[6], header[7]]);
        let long = u64::from(bytes);
        if long < size_of::<Header>() as u64
            || !long.is_multiple_of(MESSAGE_ALIGN)
            || long > area::MESSAGE_MAX
        {
            return Err(DecodeError::Size(bytes).into());
        }
        let offset = self.head % area::RING_BYTES;
        if offset + long > area::RING_BYTES {
            return Err(Violation::Wraps { offset, bytes });
        }
        if long > tail - self.head {
            return Err(DecodeError::Short.into());
        }
        Ok(bytes)
    }

    /// Copies bytes from `head` on into private memory, at most `most` and none beyond `tail` or the end of
    /// the ring.
    fn refill(&mut self, window: &Window, tail: u64, most: u64) {
        let offset = self.head % area::RING_BYTES;
        let bytes = most.min(tail - self.head).min(area::RING_BYTES - offset);
        self.start = 0;
        self.end = bytes as usize;
        let source =
            window.slice(self.area + area::RING + offset, bytes).expect("a ring lies within the window");
        source.copy_to(&mut self.private[..self.end]);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    struct Bench {
        _dir: tempfile::TempDir,
        window: Window,
        tail: u64,
    }

    impl Bench {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let window = Window::create(&dir.path().join("w"), area::AREA_BYTES).unwrap();
            Self { _dir: dir, window, tail: 0 }
        }

        fn put(&mut self, bytes: u32, fill: u8) {
            let mut message = vec![fill; bytes as usize];
            message[4..8].copy_from_slice(&bytes.to_le_bytes());
            let offset = area::RING + self.tail % area::RING_BYTES;
            self.window.slice(offset, u64::from(bytes)).unwrap().copy_from(&message);
            self.tail += u64::from(bytes);
        }

        fn publish(&self, tail: u64) {
            self.window.u64_at(area::SUBMIT_TAIL).store(tail, Ordering::Release);
        }
    }

    #[test]
    fn tails_that_cannot_be_are_violations() {
        let bench = Bench::new();
        let ring = Ring::new(0);
        for tail in [8, area::RING_BYTES + 16, u64::MAX - 15, u64::MAX] {
            bench.publish(tail);
            assert_eq!(ring.tail(&bench.window), Err(Violation::Tail { tail, head: 0 }));
        }
        bench.publish(area::RING_BYTES);
        assert_eq!(ring.tail(&bench.window), Ok(area::RING_BYTES));
    }

    #[test]
    fn lengths_that_cannot_be_are_violations() {
        for (bytes, tail, expected) in [
            (0u32, 64, Violation::Decode(DecodeError::Size(0))),
            (8, 64, Violation::Decode(DecodeError::Size(8))),
            (24, 64, Violation::Decode(DecodeError::Size(24))),
            (0x1_0010, 0x2_0000, Violation::Decode(DecodeError::Size(0x1_0010))),
            (80, 64, Violation::Decode(DecodeError::Short)),
        ] {
            let bench = Bench::new();
            bench.window.slice(area::RING + 4, 4).unwrap().copy_from(&bytes.to_le_bytes());
            assert_eq!(Ring::new(0).next(&bench.window, tail), Err(expected));
        }
    }

    #[test]
    fn a_message_may_end_at_the_end_of_the_ring_but_not_go_beyond() {
        let mut bench = Bench::new();
        let mut ring = Ring::new(0);
        for _ in 0..3 {
            bench.put(0x1_0000, 1);
        }
        bench.put(0xfff0, 2);
        while ring.next(&bench.window, bench.tail).unwrap().is_some() {}
        let mut last = ring.head();
        // Sixteen bytes are left: a message of exactly that length, then one that does not fit.
        bench.put(16, 3);
        assert_eq!(ring.next(&bench.window, bench.tail).unwrap().unwrap().len(), 16);
        last += 16;
        assert_eq!((ring.head(), last % area::RING_BYTES), (last, 0));

        let bench = Bench::new();
        let mut ring = Ring::new(0);
        ring.head = area::RING_BYTES - 16;
        bench.window.slice(area::RING + area::RING_BYTES - 12, 4).unwrap().copy_from(&32u32.to_le_bytes());
        let wraps = Violation::Wraps { offset: area::RING_BYTES - 16, bytes: 32 };
        assert_eq!(ring.next(&bench.window, area::RING_BYTES + 16), Err(wraps));
    }

    proptest! {
        #[test]
        fn messages_come_out_as_they_went_in(lengths in prop::collection::vec(1u32..=0x1000, 1..200), every in 1usize..9) {
            let mut bench = Bench::new();
            let mut ring = Ring::new(0);
            let mut pending: Vec<(u32, u8)> = Vec::new();
            for (index, length) in lengths.iter().enumerate() {
                let mut bytes = length * 16;
                let room = area::RING_BYTES - bench.tail % area::RING_BYTES;
                if u64::from(bytes) > room {
                    bytes = room as u32;
                }
                bench.put(bytes, index as u8);
                pending.push((bytes, index as u8));
                let full = bench.tail - ring.head() > area::RING_BYTES - 0x1_0000;
                if index % every == 0 || full || index + 1 == lengths.len() {
                    bench.publish(bench.tail);
                    let tail = ring.tail(&bench.window).unwrap();
                    for (bytes, fill) in pending.drain(..) {
                        let message = ring.next(&bench.window, tail).unwrap().unwrap();
                        let message = ring.bytes(message);
                        prop_assert_eq!(message.len(), bytes as usize);
                        prop_assert!(message[8..].iter().all(|&byte| byte == fill));
                    }
                    prop_assert!(ring.next(&bench.window, tail).unwrap().is_none());
                }
            }
        }
    }
}
