//! The null executor.
