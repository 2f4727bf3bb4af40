//! Errors of texts, with the line where each was found.

use crate::effort::Spent;

/// Largest number of bytes of a line that an error shows.
const SHOWN: usize = 200;

/// Reason for which a module or a kernel cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PtxError {
    /// The text is not PTX, or does not follow its rules.
    #[error("line {line}: `{text}`: {message}")]
    Syntax {
        /// Line of the module's text, from 1.
        line: u32,
        /// The line, truncated if it is long.
        text: String,
        /// Description of what was expected and what was found.
        message: String,
    },
    /// The front end does not know an instruction, or this form of it.
    #[error("line {line}: `{text}`: there is no instruction {spelling}")]
    Unsupported {
        /// Line of the module's text, from 1.
        line: u32,
        /// The line, truncated if it is long.
        text: String,
        /// The instruction with its modifiers, as it is written.
        spelling: String,
    },
    /// A name is used that nothing declares.
    #[error("line {line}: `{text}`: {name} is not declared")]
    Undeclared {
        /// Line of the module's text, from 1.
        line: u32,
        /// The line, truncated if it is long.
        text: String,
        /// Name that nothing declares.
        name: String,
    },
    /// A number exceeds a limit of the language or of every GPU. No compiler produces such a kernel.
    #[error("line {line}: `{text}`: more than {most} {what}")]
    Limit {
        /// Line of the module's text, from 1.
        line: u32,
        /// The line, truncated if it is long.
        text: String,
        /// Plural noun for the objects that exceed the limit.
        what: &'static str,
        /// Limit that was exceeded.
        most: u64,
    },
    /// A valid text exceeds a limit of the time and memory that this device spends.
    #[error("line {line}: `{text}`: too large for this device: more than {most} {what}")]
    TooLarge {
        /// Line of the module's text, from 1.
        line: u32,
        /// The line, truncated if it is long.
        text: String,
        /// Plural noun for the objects that exceed the limit.
        what: &'static str,
        /// Limit that was exceeded.
        most: u64,
    },
    /// Parsing was abandoned.
    #[error(transparent)]
    Spent(#[from] Spent),
    /// The module has no kernel of this name.
    #[error("the module has no kernel {0}")]
    NoKernel(String),
}

/// Returns the line of `text` that contains byte `at`, without surrounding blanks.
pub(crate) fn line_at(text: &[u8], at: usize) -> String {
    let at = at.min(text.len());
    let start = memchr::memrchr(b'\n', &text[..at]).map_or(0, |end| end + 1);
    let end = memchr::memchr(b'\n', &text[at..]).map_or(text.len(), |end| at + end);
    let line = text[start..end].trim_ascii();
    let shown = String::from_utf8_lossy(&line[..line.len().min(SHOWN)]).into_owned();
    if line.len() > SHOWN { shown + " ..." } else { shown }
}
