//! What is wrong with a text, and where.

use crate::effort::Spent;

/// Bytes of a line that an error shows.
const SHOWN: usize = 200;

/// Why a module or a kernel of it cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PtxError {
    /// The text is not PTX, or does not follow its rules.
    #[error("line {line}: `{text}`: {message}")]
    Syntax {
        /// Line of the module's text, from 1.
        line: u32,
        /// The line, cut where it is long.
        text: String,
        /// What was expected and what was found.
        message: String,
    },
    /// An instruction, or a form of one, that this front end does not know.
    #[error("line {line}: `{text}`: there is no instruction {spelling}")]
    Unsupported {
        /// Line of the module's text, from 1.
        line: u32,
        /// The line, cut where it is long.
        text: String,
        /// The instruction with its modifiers.
        spelling: String,
    },
    /// A name that nothing declares.
    #[error("line {line}: `{text}`: {name} is not declared")]
    Undeclared {
        /// Line of the module's text, from 1.
        line: u32,
        /// The line, cut where it is long.
        text: String,
        /// The name that was used.
        name: String,
    },
    /// More of something than the language or any GPU has: no compiler makes a kernel of it.
    #[error("line {line}: `{text}`: more than {most} {what}")]
    Limit {
        /// Line of the module's text, from 1.
        line: u32,
        /// The line, cut where it is long.
        text: String,
        /// What there is too much of, in the plural.
        what: &'static str,
        /// How many there may be.
        most: u64,
    },
    /// A right text, but with more of something than this device spends time and memory on.
    #[error("line {line}: `{text}`: too large for this device: more than {most} {what}")]
    TooLarge {
        /// Line of the module's text, from 1.
        line: u32,
        /// The line, cut where it is long.
        text: String,
        /// What there is too much of, in the plural.
        what: &'static str,
        /// How many there may be.
        most: u64,
    },
    /// Reading it was given up.
    #[error(transparent)]
    Spent(#[from] Spent),
    /// The module has no kernel of this name.
    #[error("the module has no kernel {0}")]
    NoKernel(String),
}

/// The line of `text` that holds byte `at`, without blanks around it.
pub(crate) fn line_at(text: &[u8], at: usize) -> String {
    let at = at.min(text.len());
    let start = memchr::memrchr(b'\n', &text[..at]).map_or(0, |end| end + 1);
    let end = memchr::memchr(b'\n', &text[at..]).map_or(text.len(), |end| at + end);
    let line = text[start..end].trim_ascii();
    let shown = String::from_utf8_lossy(&line[..line.len().min(SHOWN)]).into_owned();
    if line.len() > SHOWN { shown + " ..." } else { shown }
}
