//! Types for the problems between a program and the GPU: the chain of links with causes and remedies
//! ([`catalogue`]), and the result for a link ([`Finding`]).
//!
//! The launcher's errors and the report of `check` both use these types, so that one problem is described by
//! one sentence everywhere. This module depends on neither.

pub mod by_kind;
pub mod catalogue;

pub use catalogue::{Cause, LinkId, cause, fix};
pub use vgpu_findings::verdict;
pub use vgpu_findings::{Fix, Remedy, Status, Verdict};

/// Result of the examination of one link of this chain.
pub type Finding = vgpu_findings::Finding<LinkId>;
