//! Tests of the cuda executor with a libcuda that refuses what CUDA's documentation forbids, and records each
//! call. No call may be refused, the calls must match the files of `sequences`, and no data of a guest may be
//! read.

#![allow(clippy::disallowed_methods, reason = "locks of tests are not watched")]

mod driver;
mod freeing;
mod gpu;
mod graphs;
mod holds;
mod libraries;
mod links;
#[path = "../common/locks.rs"]
mod locks;
mod losses;
mod matmuls;
mod memory;
mod orders;
mod payload;
mod products;
mod time;
mod turns;
mod waits;
