//! Helpers that the cases of all families share.

use crate::compare::Limit;

/// Error limit of operations that have no limit of their own.
pub const USUAL: Limit = Limit::Nmse(1e-7);

/// Formats sizes as `10x5x4x3`.
pub fn size(ne: [i64; 4]) -> String {
    ne.map(|count| count.to_string()).join("x")
}
