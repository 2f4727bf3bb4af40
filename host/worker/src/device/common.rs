//! What the sessions of an executor share.

use std::sync::Arc;

use crate::device::accounts::Accounts;
use crate::device::spawn::Program;

/// What they share.
#[derive(Debug)]
pub(crate) struct Common {
    /// What workers are started with.
    pub(crate) program: Program,
    /// Who has how much of the device's memory.
    pub(crate) accounts: Arc<Accounts>,
}
