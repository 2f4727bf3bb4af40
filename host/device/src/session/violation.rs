//! What a guest can do wrong. A violation ends its session.

use vgpu_wire::body::pages::{PageRun, RunError};
use vgpu_wire::{DecodeError, Kind};

/// How a guest broke the contract. The text follows "ended: ".
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// The count of bytes written is unaligned, ahead of the ring, or behind what was read.
    #[error("the ring's tail {tail:#x} does not fit its head {head:#x}")]
    Tail {
        /// What the guest stored.
        tail: u64,
        /// What the host has consumed.
        head: u64,
    },
    /// A message goes beyond the end of the ring.
    #[error("a message of {bytes} bytes at ring offset {offset:#x} wraps")]
    Wraps {
        /// Its offset in the ring.
        offset: u64,
        /// Its length.
        bytes: u32,
    },
    /// The bytes are not a message.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// Message numbers do not follow each other.
    #[error("the message's number is {found}, not {expected}")]
    Number {
        /// Low half of the number that was due.
        expected: u32,
        /// What the header says.
        found: u32,
    },
    /// The first message is not Hello, or Hello is not the first.
    #[error("a session begins with one Hello")]
    Hello,
    /// A field that must be zero is not.
    #[error("a reserved field is not zero")]
    Reserved,
    /// No such reply slot.
    #[error("there is no reply slot {0}")]
    Slot(u32),
    /// No such completion word.
    #[error("there is no completion word {0}")]
    Word(u32),
    /// A mark's value is below an earlier one of its word.
    #[error("word {word} was promised {before} and then {value}")]
    Decreasing {
        /// The word.
        word: u32,
        /// The highest value before.
        before: u64,
        /// The value now.
        value: u64,
    },
    /// A span of a segment that the session does not have, or that this field cannot name.
    #[error("segment {0:#x} is not the session's")]
    Segment(u32),
    /// A span of window memory that the session does not own.
    #[error("{bytes:#x} bytes at window offset {offset:#x} are not the session's")]
    Span {
        /// Offset in the window.
        offset: u64,
        /// Length.
        bytes: u64,
    },
    /// A span of guest pages that does not lie in one run of its segment.
    #[error("{bytes:#x} bytes at {offset:#x} of segment {segment} are not in one run of pages")]
    PageSpan {
        /// The segment.
        segment: u32,
        /// Offset in it.
        offset: u64,
        /// Length.
        bytes: u64,
    },
    /// A list of guest pages that cannot be one.
    #[error("a list of {0} runs of pages, which there cannot be")]
    PageRuns(u32),
    /// A run of guest pages that is not one.
    #[error("{bytes:#x} bytes at guest-physical address {address:#x} are no pages")]
    PageRun {
        /// Where it begins.
        address: u64,
        /// Length.
        bytes: u64,
    },
    /// Window memory is given back that was not given out.
    #[error("window offset {0:#x} was not allocated by the session")]
    WindowFree(u64),
    /// A field has a value that the contract does not know.
    #[error("{field} is {value:#x}")]
    Field {
        /// Which.
        field: &'static str,
        /// What it holds.
        value: u64,
    },
    /// A minted number that is already in use, or not in use.
    #[error("{what} {number} is {state}")]
    Handle {
        /// Kind of handle.
        what: &'static str,
        /// The number.
        number: u32,
        /// "unknown" or "in use".
        state: &'static str,
    },
    /// Found by a worker process, whose words these are.
    #[error("{0}")]
    InWorker(String),
    /// A graph's payload is not a list of records.
    #[error("record {record} of the graph's payload: {reason}")]
    Graph {
        /// Index of the record.
        record: u32,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A message inside a graph's payload is not one.
    #[error("record {record} of the graph's payload: {source}")]
    GraphMessage {
        /// Index of the record.
        record: u32,
        /// What is wrong.
        source: DecodeError,
    },
    /// A kind that cannot be a graph's node.
    #[error("record {record} of the graph's payload: {} cannot be a node", .kind.name())]
    GraphKind {
        /// Index of the record.
        record: u32,
        /// The kind.
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
    /// What is said of a minted number that nothing has.
    pub(crate) const UNKNOWN: &str = "unknown";

    /// A minted number that nothing has.
    #[must_use]
    pub const fn unknown(what: &'static str, number: u32) -> Self {
        Self::Handle { what, number, state: Self::UNKNOWN }
    }

    /// A minted number that something has already.
    #[must_use]
    pub const fn in_use(what: &'static str, number: u32) -> Self {
        Self::Handle { what, number, state: "in use" }
    }
}
