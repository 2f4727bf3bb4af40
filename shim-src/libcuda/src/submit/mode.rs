//! Synchronous and asynchronous copies and fills: what each mode checks before the work, and ensures after
//! it.

use crate::Result;
use crate::object::capture;
use crate::object::stream::Stream;

/// Whether the caller continues while the copy is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The call returns once host memory is no longer in use. All later work on any stream is ordered after
    /// the copy.
    Sync,
    /// The work is ordered by the stream alone.
    Async,
}

/// Checks before a synchronous call that no capture forbids it.
pub fn begin(mode: Mode) -> Result {
    if mode == Mode::Sync { capture::forbid_unsafe() } else { Ok(()) }
}

/// Ends a copy or fill. After a synchronous one, orders later work on any stream after everything submitted
/// to this stream (CUDA promises that for few copies, but programs rely on it), and returns the error that
/// the host has reported so far.
pub fn end(stream: &Stream, mode: Mode) -> Result {
    if mode == Mode::Async {
        return Ok(());
    }
    let queue = &stream.gpu().queue;
    stream.timeline.join(queue);
    queue.async_error()
}
