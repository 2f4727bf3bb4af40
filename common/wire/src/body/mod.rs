//! The bodies of messages, by chapter of the CUDA manual. Each states its meaning, its tail, and when its
//! marks are stored. The table of kinds is in `message.rs`.
//!
//! Conventions: `reply` is the index of a reply slot; `stream` is 0 for the legacy default stream or a minted
//! number; device addresses are the executor's; a field named `reserved` is zero.

pub mod copy;
pub mod gemm;
pub mod graph;
pub mod launch;
pub mod link;
pub mod matmul;
pub mod memory;
pub mod module;
pub mod pages;
pub mod session;
pub mod stream;
pub mod vector;
