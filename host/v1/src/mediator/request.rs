//! A call as the mediator executes it, and its result.

use vgpu_wire::v1::call::Op;
use vgpu_wire::v1::{ARGS, join};

/// A call, split into its operation, arguments and payload.
pub(super) struct Request<'a> {
    pub(super) op: Op,
    pub(super) args: [u32; ARGS],
    pub(super) num_args: usize,
    pub(super) data: &'a [u8],
}

impl Request<'_> {
    /// Returns the 64-bit argument in the 32-bit arguments `at` and `at + 1`, low half first.
    pub(super) const fn wide(&self, at: usize) -> u64 {
        join(&self.args, at)
    }
}

/// The result of a successful call.
#[derive(Debug, Default)]
pub(super) struct Reply {
    pub(super) results: Vec<u64>,
    pub(super) data: Vec<u8>,
}

impl Reply {
    /// A reply without results and data.
    pub(super) const NONE: Self = Self { results: Vec::new(), data: Vec::new() };

    /// Creates a reply with results and without data.
    pub(super) fn results(results: &[u64]) -> Self {
        Self { results: results.to_vec(), data: Vec::new() }
    }

    /// Creates a reply with data and without results.
    pub(super) const fn data(data: Vec<u8>) -> Self {
        Self { results: Vec::new(), data }
    }
}
