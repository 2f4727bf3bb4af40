//! What a process said to the host, what it waited for, and what the host refused.

use std::fmt;

use vgpu_trace_format::{WAIT_ANSWER, WAIT_ROOM};

use super::status;

/// The number of libcuda, whose codes the host answers.
const DRIVER: u16 = 0;

/// A message, a wait or a refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceEvent {
    /// The kind of event, with what only this kind has.
    pub what: What,
    /// Linux thread id.
    pub thread: u32,
    /// Start of the event, in nanoseconds since boot.
    pub begin: u64,
    /// End of the event, in nanoseconds since boot.
    pub end: u64,
}

/// Details by kind of event.
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
    /// A wait that was not over at once.
    Wait {
        /// Object that the thread waited for.
        awaited: Awaited,
        /// Whether the thread slept rather than only spun.
        slept: bool,
    },
    /// The host refused a call and said why.
    Refusal(TracedRefusal),
}

/// A refusal by the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracedRefusal {
    /// The kind of the message that it refused.
    pub kind: String,
    /// The `CUresult` that it answered.
    pub code: u32,
    /// Reason in the host's words, which may be any bytes.
    pub reason: Vec<u8>,
}

impl TracedRefusal {
    /// The reason as text, in one line: it is not to steer a terminal.
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
    /// Room in the ring.
    Room,
    /// The completion word of this number.
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
