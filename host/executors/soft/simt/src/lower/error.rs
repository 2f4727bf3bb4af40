//! Errors of lowering. The line of the text is added to them later.

use vgpu_ptx::Spent;

/// Result of lowering a part of a kernel. The error describes the problem with that part.
pub(super) type Lowered<T = ()> = Result<T, String>;

/// Reason why a kernel could not be analysed before it is lowered.
pub(super) enum BuildError {
    /// The kernel is malformed or unsupported, for this reason.
    Wrong(String),
    /// The limit of work or memory is exhausted, or lowering was stopped.
    Spent(Spent),
}

impl From<String> for BuildError {
    fn from(what: String) -> Self {
        Self::Wrong(what)
    }
}

impl From<Spent> for BuildError {
    fn from(spent: Spent) -> Self {
        Self::Spent(spent)
    }
}
