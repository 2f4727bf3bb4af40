//! Violations of the contract by a guest. A violation ends its session.

use vgpu_wire::body::pages::{PageRun, RunError};
use vgpu_wire::{DecodeError, Kind};

/// A violation of the contract by a guest. The text follows "ended: ".
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// The tail is unaligned, ahead of the ring, or behind the bytes that were read.
    #[error("the ring's tail {tail:#x} does not fit its head {head:#x}")]
    Tail {
        /// Tail that the guest stored.
        tail: u64,
        /// Number of bytes that the host has read.
        head: u64,
    },
    /// A message goes beyond the end of the ring.
    #[error("a message of {bytes} bytes at ring offset {offset:#x} wraps")]
    Wraps {
        /// Offset of the message in the ring.
        offset: u64,
        /// Length of the message in bytes.
        bytes: u32,
    },
    /// The bytes are not a message.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The message's number does not follow that of the message before it.
    #[error("the message's number is {found}, not {expected}")]
    Number {
        /// Low half of the expected number.
        expected: u32,
        /// Number in the header of the message.
        found: u32,
    },
    /// The first message is not Hello, or Hello is not the first.
    #[error("a session begins with one Hello")]
    Hello,
    /// A field that must be zero has another value.
    #[error("a reserved field is not zero")]
    Reserved,
    /// The message names a reply slot that does not exist.
    #[error("there is no reply slot {0}")]
    Slot(u32),
    /// The message names a completion word that does not exist.
    #[error("there is no completion word {0}")]
    Word(u32),
    /// A mark's value is below an earlier one of its word.
    #[error("word {word} was promised {before} and then {value}")]
    Decreasing {
        /// Number of the word.
        word: u32,
        /// Highest value that was promised before.
        before: u64,
        /// Value of the new mark.
        value: u64,
    },
    /// A span names a segment that the session does not have, or that this field cannot name.
    #[error("segment {0:#x} is not the session's")]
    Segment(u32),
    /// A span names window memory that the session does not own.
    #[error("{bytes:#x} bytes at window offset {offset:#x} are not the session's")]
    Span {
        /// Offset of the span in the window.
        offset: u64,
        /// Length in bytes.
        bytes: u64,
    },
    /// A span of guest pages is not within one run of its segment.
    #[error("{bytes:#x} bytes at {offset:#x} of segment {segment} are not in one run of pages")]
    PageSpan {
        /// Number of the segment.
        segment: u32,
        /// Offset of the span in the segment.
        offset: u64,
        /// Length in bytes.
        bytes: u64,
    },
    /// A list of guest pages is empty or too long.
    #[error("a list of {0} runs of pages, which there cannot be")]
    PageRuns(u32),
    /// A run of guest pages is unaligned, empty or beyond the address space.
    #[error("{bytes:#x} bytes at guest-physical address {address:#x} are no pages")]
    PageRun {
        /// Guest-physical address of the run.
        address: u64,
        /// Length in bytes.
        bytes: u64,
    },
    /// The guest frees window memory at this offset that it did not allocate.
    #[error("window offset {0:#x} was not allocated by the session")]
    WindowFree(u64),
    /// A field has a value that the contract does not know.
    #[error("{field} is {value:#x}")]
    Field {
        /// Name of the field.
        field: &'static str,
        /// Value of the field in the guest's message.
        value: u64,
    },
    /// The number of a handle is in use already, or unknown.
    #[error("{what} {number} is {state}")]
    Handle {
        /// Kind of the handle, such as "stream".
        what: &'static str,
        /// Number of the handle.
        number: u32,
        /// State of the number: "unknown" or "in use".
        state: &'static str,
    },
    /// A worker process has found the violation. The text is its message.
    #[error("{0}")]
    InWorker(String),
    /// A graph's payload is not a list of records.
    #[error("record {record} of the graph's payload: {reason}")]
    Graph {
        /// Index of the record.
        record: u32,
        /// Description of the error in the record.
        reason: &'static str,
    },
    /// A message inside a graph's payload is not one.
    #[error("record {record} of the graph's payload: {source}")]
    GraphMessage {
        /// Index of the record.
        record: u32,
        /// Reason for which the message cannot be decoded.
        source: DecodeError,
    },
    /// A message of this kind cannot be a graph's node.
    #[error("record {record} of the graph's payload: {} cannot be a node", .kind.name())]
    GraphKind {
        /// Index of the record.
        record: u32,
        /// Kind of the message.
        kind: Kind,
    },
}

impl From<RunError> for Violation {
    fn from(error: RunError) -> Self {
        match error {
            RunError::Count(count) => Self::PageRuns(count),
            RunError::Run(PageRun { address, bytes }) => Self::PageRun { address, bytes },
        }
    }
}

impl Violation {
    /// State of a number that no handle has.
    pub(crate) const UNKNOWN: &str = "unknown";

    /// Returns the violation for a number that no handle has.
    #[must_use]
    pub const fn unknown(what: &'static str, number: u32) -> Self {
        Self::Handle { what, number, state: Self::UNKNOWN }
    }

    /// Returns the violation for the number of a new handle that another handle has.
    #[must_use]
    pub const fn in_use(what: &'static str, number: u32) -> Self {
        Self::Handle { what, number, state: "in use" }
    }
}
