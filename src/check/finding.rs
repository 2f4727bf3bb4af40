//! What is found at a link: one line for a person, and the evidence.

use std::time::Duration;

use crate::check::catalogue::LinkId;

/// How a link stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It holds.
    Pass,
    /// It holds, and something about it should be known.
    Warn,
    /// It is broken.
    Fail,
    /// It was not looked at; the finding says why.
    Skip,
}

/// What mends it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fix {
    /// What to do: a whole sentence.
    pub text: String,
    /// A command that does it, to be copied.
    pub command: Option<String>,
    /// Whether only root can do it.
    pub needs_root: bool,
}

/// A link's outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Which link.
    pub link: LinkId,
    /// How it stands.
    pub status: Status,
    /// What is there, in few words: `256 MiB, echo 0.6 µs`.
    pub found: String,
    /// What should be there, if something else.
    pub expected: Option<String>,
    /// The cause: an id of the catalogue or [`UNKNOWN`](crate::check::catalogue::UNKNOWN). Given with `Fail`, and with a `Warn`
    /// that has one.
    pub cause: Option<&'static str>,
    /// What mends it.
    pub fix: Option<Fix>,
    /// Evidence, a line each: paths, numbers, other programs' words.
    pub details: Vec<String>,
    /// How long it took.
    pub elapsed: Duration,
}
