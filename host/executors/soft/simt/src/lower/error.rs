//! Why a kernel is not lowered, before a line of its text is added.

use vgpu_ptx::Spent;

/// The result of lowering a part of a kernel, or what is wrong with that part.
pub(super) type Lowered<T = ()> = Result<T, String>;

/// Why a kernel is not lowered, found before its first instruction is.
pub(super) enum BuildError {
    /// What is wrong with it.
    Wrong(String),
    /// Lowering was given up.
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
