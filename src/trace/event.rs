//! What a process said to the host, and what it waited for.

use std::fmt;

use vgpu_trace_format::{WAIT_ANSWER, WAIT_ROOM};

/// A message or a wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// What.
    pub what: What,
    /// Thread id.
    pub thread: u32,
    /// Nanoseconds since boot.
    pub begin: u64,
    /// The same.
    pub end: u64,
}

/// Kinds of events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A message to the host.
    Message {
        /// Its kind.
        kind: String,
        /// Its bytes, with header and padding.
        bytes: u64,
        /// Its number.
        number: u64,
    },
    /// A wait that was not over at once.
    Wait {
        /// What it was for.
        awaited: Awaited,
        /// It did not only spin.
        slept: bool,
    },
}

/// What a wait is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// The answer to a message.
    Answer,
    /// Room in the ring.
    Room,
    /// This completion word.
    Word(u32),
}

impl Awaited {
    /// What the index of a record means.
    pub fn of(index: u32) -> Self {
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
