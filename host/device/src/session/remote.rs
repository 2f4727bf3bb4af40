//! A session in another process, as the device's process sees it: how it is queried for the status report,
//! how it is told to stop, why it is lost, and where the memory is that it shares with its guest.

use std::os::fd::BorrowedFd;

use crate::memory::window::Window;
use crate::session::gauges::Gauges;

/// Link from the device's process to a session in a worker process. Any thread may call it, and no call
/// waits.
pub trait WorkerLink: Send + Sync {
    /// Updates the figures that the status report shows.
    fn show(&self, gauges: &Gauges);

    /// Returns the number of messages that the session has carried out.
    fn done(&self) -> u64;

    /// Returns the number of bytes of host and device memory that the session holds.
    fn charged(&self) -> u64;

    /// Tells the session to stop, because the guest detached or the device ends.
    fn stop(&self);

    /// Wakes the session's thread if it waits for the worker process, because a pause of the device begins or
    /// ends.
    fn interrupt(&self);
}

/// Link from a worker process to the device's process, for one session.
pub trait DeviceProcess: Send + Sync {
    /// Reports a change of device memory, which the gauges show. `answered` is the number of the message that
    /// caused it, if that is answered next.
    fn memory_changed(&self, answered: Option<u64>);

    /// Asks for `bytes` of device memory that no message requests. If the device has them, calls `take`,
    /// which charges the session at most so many, and returns true. Waits for the answer.
    fn reserve(&self, bytes: u64, take: &mut dyn FnMut()) -> bool;

    /// Reports that the executor has worked longer for the session, which the gauges show. Any thread may
    /// call this.
    fn worked(&self);

    /// Reports that the work of all messages up to `number` is complete. Any thread may call this.
    fn settled(&self, number: u64);

    /// Reports that nothing refers any more to memory that the device's process retired under `number`. Guest
    /// pages are unmapped already. Window memory is unmapped by this call.
    fn release(&self, number: u64, range: SharedRange);
}

/// Reason for which a session is lost, if a thread other than its own finds out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionLoss {
    /// The guest broke the contract in a way that only the executor can see.
    Violation {
        /// Number of the message that broke the contract.
        number: u64,
        /// Description of the violation, which follows "ended: " in the log.
        text: String,
    },
    /// The executor lost the session.
    Executor {
        /// Number of the message in progress, if that is known.
        number: Option<u64>,
        /// Description of the loss as text.
        text: String,
    },
}

/// Shared memory that is granted to a session or retired from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SharedRange {
    /// The memory is a range of the window.
    Window {
        /// Offset in the window.
        offset: u64,
        /// Length in bytes.
        bytes: u64,
    },
    /// The memory is guest pages, as a segment.
    Pages {
        /// Number of the segment.
        segment: u32,
    },
}

/// Range of a file, for another process that maps it.
#[derive(Clone, Copy, Debug)]
pub struct FileRange<'a> {
    /// File that contains the range.
    pub file: BorrowedFd<'a>,
    /// Offset in the file.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
}

impl<'a> FileRange<'a> {
    pub(crate) fn new(memory: &'a Window) -> Self {
        Self { file: memory.file(), offset: memory.file_offset(), bytes: memory.bytes() }
    }
}
