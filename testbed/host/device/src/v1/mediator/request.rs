//! A call as the mediator carries it out, and what it brings.

use vgpu_wire::v1::call::Op;
use vgpu_wire::v1::{ARGS, join};

/// A call, taken apart.
pub(super) struct Request<'a> {
    pub(super) op: Op,
    pub(super) args: [u32; ARGS],
    pub(super) num_args: usize,
    pub(super) data: &'a [u8],
}

impl Request<'_> {
    /// The 64-bit argument that begins with argument `at`.
    pub(super) const fn wide(&self, at: usize) -> u64 {
        join(&self.args, at)
    }
}

/// What a call brings, where it succeeds.
#[derive(Debug, Default)]
pub(super) struct Reply {
    pub(super) results: Vec<u64>,
    pub(super) data: Vec<u8>,
}

impl Reply {
    /// Nothing but success.
    pub(super) const NONE: Self = Self { results: Vec::new(), data: Vec::new() };

    /// A reply with results and without data.
    pub(super) fn of(results: &[u64]) -> Self {
        Self { results: results.to_vec(), data: Vec::new() }
    }

    /// A reply with data and without results.
    pub(super) const fn data(data: Vec<u8>) -> Self {
        Self { results: Vec::new(), data }
    }
}
