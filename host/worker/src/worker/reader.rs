//! The reading end of a worker's ring: copies frames to private memory and cuts them apart. The device's
//! process is trusted with what it writes; that the frames are whole is checked all the same, so that a
//! mistake ends the worker and does nothing else.

use std::ops::Range;

use vgpu_device::Window;
use zerocopy::FromBytes;

use crate::shared::board::Board;
use crate::shared::frame::{FRAME_ALIGN, FRAME_MAX, FrameKind, Head, RING_BYTES, room};

/// How much is copied at once unless a frame is longer: it stays in the first-level cache.
const CHUNK: u64 = 0x2000;

/// Frames that make no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the ring makes no sense at {0:#x}")]
pub(crate) struct BadFrame(u64);

/// A frame in private memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: FrameKind,
    pub(crate) number: u64,
    /// Where its body lies until the next frame is taken.
    pub(crate) body: Range<usize>,
}

/// The reader.
#[derive(Debug)]
pub(crate) struct Reader {
    ring: Window,
    /// Bytes of the ring that have been cut into frames.
    head: u64,
    private: Box<[u8]>,
    /// Of it, what has been copied and not yet cut.
    start: usize,
    end: usize,
}

impl Reader {
    pub(crate) fn new(ring: Window) -> Self {
        Self { ring, head: 0, private: vec![0; FRAME_MAX as usize].into_boxed_slice(), start: 0, end: 0 }
    }

    /// Whether there is more than has been read.
    pub(crate) fn has_news(&self, board: &Board) -> bool {
        board.tail() != self.head
    }

    /// The next frame before `tail`; nothing when all are read. Tells the board what has been copied.
    pub(crate) fn next(&mut self, board: &Board, tail: u64) -> Result<Option<Frame>, BadFrame> {
        loop {
            if self.head == tail {
                return Ok(None);
            }
            if tail.wrapping_sub(self.head) > RING_BYTES || !tail.is_multiple_of(FRAME_ALIGN) {
                return Err(BadFrame(tail));
            }
            if self.start == self.end {
                self.refill(board, tail, CHUNK)?;
            }
            let mut head = self.head_of()?;
            if room(u64::from(head.bytes)) as usize > self.end - self.start
                && head.kind != FrameKind::Pad as u32
            {
                self.refill(board, tail, FRAME_MAX)?;
                head = self.head_of()?;
            }
            let (bytes, offset) = (u64::from(head.bytes), self.head % RING_BYTES);
            let kind = FrameKind::of(head.kind).ok_or(BadFrame(self.head))?;
            if kind == FrameKind::Pad {
                // What it fills is not looked at.
                if offset + bytes != RING_BYTES || bytes > tail - self.head {
                    return Err(BadFrame(self.head));
                }
                self.head += bytes;
                (self.start, self.end) = (0, 0);
                continue;
            }
            if bytes < size_of::<Head>() as u64 || room(bytes) as usize > self.end - self.start {
                return Err(BadFrame(self.head));
            }
            let body = self.start + size_of::<Head>()..self.start + bytes as usize;
            self.start += room(bytes) as usize;
            self.head += room(bytes);
            return Ok(Some(Frame { kind, number: head.number, body }));
        }
    }

    /// Bytes of the frame that was taken last.
    pub(crate) fn body(&self, frame: &Frame) -> &[u8] {
        &self.private[frame.body.clone()]
    }

    fn head_of(&self) -> Result<Head, BadFrame> {
        Head::read_from_prefix(&self.private[self.start..self.end])
            .map(|(head, _)| head)
            .map_err(|_| BadFrame(self.head))
    }

    /// Copies from `head` on: at most `most` bytes, not beyond `tail` or the end of the ring.
    fn refill(&mut self, board: &Board, tail: u64, most: u64) -> Result<(), BadFrame> {
        let offset = self.head % RING_BYTES;
        let bytes = most.min(tail - self.head).min(RING_BYTES - offset);
        let source = self.ring.slice(offset, bytes).ok_or(BadFrame(self.head))?;
        (self.start, self.end) = (0, bytes as usize);
        source.copy_to(&mut self.private[..self.end]);
        // What has been copied may be overwritten, but for the end of a frame that is copied again.
        board.set_head(self.head);
        Ok(())
    }

    /// Lets the other side overwrite what has been read.
    pub(crate) fn release(&self, board: &Board) {
        if board.head() != self.head {
            board.set_head(self.head);
        }
    }
}
