//! The executor on a driver that computes: messages through a ring, the executor, this project's own libcuda,
//! and behind that a second device, made of software, in a process of its own.
//!
//! The driver is one for a process and finds its device by the environment, so each test runs itself again in
//! a process that has both.

#![allow(clippy::disallowed_methods, reason = "locks of tests are not watched")]

mod code;
mod conformance;
mod copies;
mod graphs;
mod links;
#[path = "../common/locks.rs"]
mod locks;
mod matmuls;
mod memory;
mod place;
mod products;
mod sessions;
