//! Events of a traced process: messages to the host, waits for the host, and refusals by the host.

use std::fmt;

use vgpu_trace_format::{WAIT_ANSWER, WAIT_ROOM};

use super::status;

/// Library number of libcuda. The host's error codes are codes of this library.
const DRIVER: u16 = 0;

/// An event of a traced process: a message, a wait or a refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceEvent {
    /// Kind of the event, and the details of that kind.
    pub what: What,
    /// Linux thread id.
    pub thread: u32,
    /// Start of the event, in nanoseconds since boot.
    pub begin: u64,
    /// End of the event, in nanoseconds since boot.
    pub end: u64,
}

/// Kind of an event, with the details of that kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A message to the host.
    Message {
        /// Name of the message's kind.
        kind: String,
        /// Size of the message with header and padding, in bytes.
        bytes: u64,
        /// Sequence number of the message.
        number: u64,
    },
    /// A wait during which the thread had to spin or sleep.
    Wait {
        /// Object that the thread waited for.
        awaited: Awaited,
        /// Whether the thread slept rather than only spun.
        slept: bool,
    },
    /// The host refused a call and gave a reason.
    Refusal(TracedRefusal),
}

/// Refusal of a message by the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracedRefusal {
    /// Name of the kind of the refused message.
    pub kind: String,
    /// `CUresult` that the host returned.
    pub code: u32,
    /// Explanation from the host; arbitrary bytes that are not trusted.
    pub reason: Vec<u8>,
}

impl TracedRefusal {
    /// Returns the reason as one line of text. Control characters become spaces, so that the text cannot
    /// control a terminal.
    pub fn words(&self) -> String {
        let text = String::from_utf8_lossy(&self.reason);
        text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
    }
}

impl fmt::Display for TracedRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, code, .. } = self;
        write!(f, "the host refused {kind} with {code}")?;
        if let Some(name) = status::name(DRIVER, *code) {
            write!(f, " {name}")?;
        }
        write!(f, ": {}", self.words())
    }
}

/// Object that a thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// The answer to a message.
    Answer,
    /// Free space in the ring.
    Room,
    /// The completion word with this index.
    Word(u32),
}

impl Awaited {
    /// Decodes the index of a record.
    pub fn from_index(index: u32) -> Self {
        match index {
            WAIT_ANSWER => Self::Answer,
            WAIT_ROOM => Self::Room,
            word => Self::Word(word),
        }
    }
}

impl fmt::Display for Awaited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answer => f.write_str("an answer"),
            Self::Room => f.write_str("room in the ring"),
            Self::Word(word) => write!(f, "word {word}"),
        }
    }
}
