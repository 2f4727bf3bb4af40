//! The soft executor.
