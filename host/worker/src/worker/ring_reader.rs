//! The reading end of a worker's ring: it copies frames to private memory and splits them. The content comes
//! from the device's process and is trusted. Frames are checked for completeness nevertheless, so that a
//! mistake ends the worker and has no other effect.

use std::ops::Range;

use vgpu_device::Window;
use zerocopy::FromBytes;

use crate::shared::frame::{FRAME_ALIGN, FRAME_MAX, FrameHead, FrameKind, RING_BYTES, room};
use crate::shared::status_page::StatusPage;

/// Number of bytes that are copied at once unless a frame is longer. They stay in the first-level cache.
const CHUNK: u64 = 0x2000;

/// Error for a malformed frame of the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the ring makes no sense at {0:#x}")]
pub(crate) struct BadFrame(u64);

/// A frame in private memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RingFrame {
    pub(crate) kind: FrameKind,
    pub(crate) number: u64,
    /// Range of the body in the private memory, valid until the next frame is read.
    pub(crate) body: Range<usize>,
}

/// Reads the frames of a ring.
#[derive(Debug)]
pub(crate) struct RingReader {
    ring: Window,
    /// Number of bytes of the ring that have been split into frames.
    head: u64,
    private: Box<[u8]>,
    /// Range of the private memory that has been copied and not yet split.
    start: usize,
    end: usize,
}

impl RingReader {
    pub(crate) fn new(ring: Window) -> Self {
        Self { ring, head: 0, private: vec![0; FRAME_MAX as usize].into_boxed_slice(), start: 0, end: 0 }
    }

    /// Returns whether the ring holds frames that were not read.
    pub(crate) fn has_news(&self, page: &StatusPage) -> bool {
        page.tail() != self.head
    }

    /// Reads the next frame before `tail`. Returns `None` if all are read. Stores in the status page how much
    /// was copied.
    pub(crate) fn next(&mut self, page: &StatusPage, tail: u64) -> Result<Option<RingFrame>, BadFrame> {
        loop {
            if self.head == tail {
                return Ok(None);
            }
            if tail.wrapping_sub(self.head) > RING_BYTES || !tail.is_multiple_of(FRAME_ALIGN) {
                return Err(BadFrame(tail));
            }
            if self.start == self.end {
                self.refill(page, tail, CHUNK)?;
            }
            let mut head = self.head_of()?;
            if room(u64::from(head.bytes)) as usize > self.end - self.start
                && head.kind != FrameKind::Pad as u32
            {
                self.refill(page, tail, FRAME_MAX)?;
                head = self.head_of()?;
            }
            let (bytes, offset) = (u64::from(head.bytes), self.head % RING_BYTES);
            let kind = FrameKind::from_number(head.kind).ok_or(BadFrame(self.head))?;
            if kind == FrameKind::Pad {
                // The content of padding is ignored.
                if offset + bytes != RING_BYTES || bytes > tail - self.head {
                    return Err(BadFrame(self.head));
                }
                self.head += bytes;
                (self.start, self.end) = (0, 0);
                continue;
            }
            if bytes < size_of::<FrameHead>() as u64 || room(bytes) as usize > self.end - self.start {
                return Err(BadFrame(self.head));
            }
            let body = self.start + size_of::<FrameHead>()..self.start + bytes as usize;
            self.start += room(bytes) as usize;
            self.head += room(bytes);
            return Ok(Some(RingFrame { kind, number: head.number, body }));
        }
    }

    /// Returns the body of the frame that was read last.
    pub(crate) fn body(&self, frame: &RingFrame) -> &[u8] {
        &self.private[frame.body.clone()]
    }

    fn head_of(&self) -> Result<FrameHead, BadFrame> {
        FrameHead::read_from_prefix(&self.private[self.start..self.end])
            .map(|(head, _)| head)
            .map_err(|_| BadFrame(self.head))
    }

    /// Copies bytes from `head` on: at most `most`, and none beyond `tail` or the end of the ring.
    fn refill(&mut self, page: &StatusPage, tail: u64, most: u64) -> Result<(), BadFrame> {
        let offset = self.head % RING_BYTES;
        let bytes = most.min(tail - self.head).min(RING_BYTES - offset);
        let source = self.ring.slice(offset, bytes).ok_or(BadFrame(self.head))?;
        (self.start, self.end) = (0, bytes as usize);
        source.copy_to(&mut self.private[..self.end]);
        // The copied bytes may be overwritten, except for the end of a frame that is copied again.
        page.set_head(self.head);
        Ok(())
    }

    /// Permits the other side to overwrite the bytes that have been read.
    pub(crate) fn release(&self, page: &StatusPage) {
        if page.head() != self.head {
            page.set_head(self.head);
        }
    }
}
