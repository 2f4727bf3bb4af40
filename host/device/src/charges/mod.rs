//! Resources that a session makes its host hold: the limits, the charges against them, and the log budget.

pub(crate) mod charge;
pub(crate) mod host_memory;
pub(crate) mod limits;
pub(crate) mod log_budget;
