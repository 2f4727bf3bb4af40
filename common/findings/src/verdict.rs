//! Overall results of a diagnosis, and their exit codes.

/// Result of a whole check, as its exit code. Scripts depend on the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Verdict {
    /// Everything works. There may be warnings.
    Works = 0,
    /// A link of the chain is broken.
    Broken = 1,
    /// Nothing is known to be broken, but not everything could be examined.
    Incomplete = 3,
}

/// The exit code for a wrong command line of `check`.
pub const USAGE: u8 = 2;
