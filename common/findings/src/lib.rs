//! Findings of a check, and how they are shown. Two programs check a chain of links: `vgpu-run check` in the
//! guest, and `vgpu-device check` on the host. Each has its own catalogue, made by [`chain!`]; findings,
//! their display, and the handling of children that may hang or crash are shared.
//!
//! ```text
//!  human, json    a report for people, and the parts of one for programs
//!  style          marks and colours of a terminal
//!  finding        what is found at a link          child   a process that is asked
//!  catalogue      links and causes
//!  verdict                                         busy    time limits on a machine that is busy
//! ```

#![forbid(unsafe_code)]

pub mod busy;
pub mod catalogue;
pub mod child;
pub mod finding;
pub mod human;
pub mod json;
mod size;
pub mod style;
mod time;
pub mod verdict;

pub use catalogue::{Cause, Chain, Link, Remedy, UNKNOWN};
pub use finding::{Finding, Fix, Status};
pub use size::size;
pub use time::time;
pub use verdict::Verdict;
