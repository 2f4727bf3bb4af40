//! What can be wrong between a program and the GPU, typed: the chain of links, its causes and what mends them
//! ([`catalogue`]), and what was found at a link ([`Finding`]).
//!
//! The launcher's errors and `check`'s report are both made of these, so one breakage has one sentence
//! wherever it is met. Nothing here depends on either.

pub mod catalogue;

pub use catalogue::{Cause, LinkId, cause, fix};
pub use vgpu_findings::verdict;
pub use vgpu_findings::{Fix, Remedy, Status, Verdict};

/// Result of the examination of one link of this chain.
pub type Finding = vgpu_findings::Finding<LinkId>;
