//! Synchronous and asynchronous copies and fills: what the two ask before the work, and leave behind after
//! it.

use crate::Result;
use crate::object::capture;
use crate::object::stream::Stream;

/// Whether the caller continues while the copy is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Returns once host memory is no longer in use. All later work on any stream is ordered after the copy.
    Sync,
    /// Ordered by the stream alone.
    Async,
}

/// Checks before a synchronous call that no capture forbids it.
pub fn begin(mode: Mode) -> Result {
    if mode == Mode::Sync { capture::forbid_unsafe() } else { Ok(()) }
}

/// After a synchronous copy, orders later work on any stream after what the stream was given (CUDA promises
/// that for few copies, but programs rely on it), and returns the error that the host has reported so far.
pub fn end(stream: &Stream, mode: Mode) -> Result {
    if mode == Mode::Async {
        return Ok(());
    }
    let queue = &stream.gpu().queue;
    stream.timeline.join(queue);
    queue.async_error()
}
