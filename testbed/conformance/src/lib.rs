//! How a libcuda has to behave, stated once for every implementation.
//!
//! A [`Case`] calls the driver API through the C ABI and panics if the driver's answer is not CUDA's. Each
//! case runs in a process of its own, because a driver is initialised once for a process. This project's shim
//! runs the suite over a soft device (`shim-src/libcuda/tests/driver/conformance.rs`) and over the executor
//! for real GPUs (`host/executors/cuda/tests/loop/conformance.rs`). The program of this crate runs it against
//! a libcuda that is given by its path, such as NVIDIA's.

#![allow(clippy::wildcard_imports, reason = "a case calls functions and macros of `calls` by the dozen")]
#![allow(clippy::macro_metavars_in_unsafe, reason = "the arguments of a case's calls are safe code")]

pub mod calls;
mod case;
mod cases;
mod kernels;
mod process;

pub use case::Case;
pub use cases::{CALLER, all, find};
pub use process::{Outcome, finish, not_applicable, run};
