//! A libcuda for tests of programs that use a GPU. It computes nothing and moves no byte of a copy. It is a
//! state machine that refuses what CUDA's documentation forbids, and it records each call, with its arguments
//! and its thread, as a line of JSON.
//!
//! ```text
//!   api        the exports, by the chapters of CUDA's manual
//!   call       one lock, a line of the record for each call, the device's thread
//!   machine    all state, and operations on several parts of it
//!   products   operations of cuBLAS; matmul has those of cuBLASLt
//!   product    a product of cuBLASLt, as its descriptors define it; matrix
//!   blas  lt  link  capture  graph  work  stream  context  code  memory  virtual_memory  host_memory
//!   place      for tests: a library of their own, and what it recorded
//!   sequence   expected calls, as data, against a record
//!   leaves     rule (what can be broken)  handle  options  record  system  raw (all unsafe code)
//! ```
//! It was written from CUDA's driver API reference and programming guide, and not from the shim that stands
//! in for libcuda in a guest, so that the two do not share a misunderstanding. Where the manual leaves
//! behaviour undefined, such as a destroyed handle or memory that is unregistered during a copy, the call is
//! refused.
//!
//! Work completes on a separate thread, after the call that submitted it. A program that assumes at once that
//! it is complete is told that it is not ready. The `options` produce other statuses that a program has to
//! expect, such as out of memory or a fault of the device.

#[macro_use]
mod call;

mod api;
mod blas;
mod capture;
mod code;
mod context;
mod description;
mod graph;
mod handle;
mod host_memory;
mod link;
mod lt;
mod machine;
mod matmul;
mod matrix;
mod memory;
mod options;
mod place;
mod product;
mod products;
mod raw;
mod record;
mod rule;
pub mod sequence;
mod stream;
mod system;
mod virtual_memory;
mod work;

pub use context::CONTEXT_BYTES;
pub use place::Recording;
pub use products::HANDLE_BYTES;
pub use rule::Rule;
