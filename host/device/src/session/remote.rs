//! A session that lives in another process, as the device's process sees it: what it is asked for the status
//! report, how it is told to stop, why it is lost, and where the memory is that it shares with its guest.

use std::os::fd::BorrowedFd;

use crate::memory::window::Window;
use crate::session::gauges::Gauges;

/// Asked and told of a session that lives in a worker process. Any thread may call, and none waits.
pub trait Remote: Send + Sync {
    /// Brings the figures up to date that the status report shows.
    fn show(&self, gauges: &Gauges);

    /// How many messages it has carried out.
    fn done(&self) -> u64;

    /// Bytes of host and device memory that it holds.
    fn charged(&self) -> u64;

    /// The session is to stop: the guest detached, or the device goes away.
    fn stop(&self);
}

/// What a worker process tells the device's process of its session: memory that changes hands, and time.
pub trait Home: Send + Sync {
    /// Device memory was taken or given back, as the gauges say. `answered`: number of the message that did
    /// so, if it is answered next.
    fn memory_changed(&self, answered: Option<u64>);

    /// The time has grown that the executor has worked for the session, as the gauges say. From any thread.
    fn worked(&self);

    /// Nothing refers any more to what the device's process has retired by a number. Guest pages are
    /// unmapped; window memory is to be unmapped now.
    fn let_go(&self, number: u64, range: SharedRange);
}

/// Why a session is lost, found by another thread than the session's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The guest broke the contract in a way that only the executor can see.
    Violation {
        /// Number of the message.
        number: u64,
        /// How; follows "ended: ".
        text: String,
    },
    /// The executor lost the session.
    Executor {
        /// Number of the message that it was at, if that is known.
        number: Option<u64>,
        /// How.
        text: String,
    },
}

/// Shared memory that becomes a session's, or was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SharedRange {
    /// A range of the window.
    Window {
        /// Offset in the window.
        offset: u64,
        /// Length.
        bytes: u64,
    },
    /// Guest pages, as a segment.
    Pages {
        /// The segment's number.
        segment: u32,
    },
}

/// Memory in a file, for another process that maps it too.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// The file.
    pub file: BorrowedFd<'a>,
    /// Where in the file.
    pub offset: u64,
    /// Length.
    pub bytes: u64,
}

impl<'a> Part<'a> {
    pub(crate) fn of(memory: &'a Window) -> Self {
        Self { file: memory.file(), offset: memory.file_offset(), bytes: memory.bytes() }
    }
}
