//! How a whole diagnosis ends, and the exit codes for that.

/// How `check` ends. Scripts rely on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Verdict {
    /// All works; there may be warnings.
    Works = 0,
    /// A link is broken.
    Broken = 1,
    /// Not everything could be examined, and nothing is known to be broken.
    Incomplete = 3,
}

/// The exit code for a wrong command line of `check`.
pub const USAGE: u8 = 2;
