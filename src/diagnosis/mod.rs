//! What can be wrong between a program and the GPU, typed: the chain of links and its causes ([`catalogue`]),
//! and what was found at a link ([`finding`]).
//!
//! The launcher's errors and `check`'s report are both made of these, so one breakage has one sentence
//! wherever it is met. Nothing here depends on either.

pub mod catalogue;
pub mod finding;
pub mod verdict;

pub use catalogue::{Cause, LinkId, cause};
pub use finding::{Finding, Fix, Status};
pub use verdict::Verdict;
