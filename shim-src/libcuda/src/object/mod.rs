//! The objects of a program as the guest keeps them, and the state of the process that owns them.
//!
//! ```text
//!   uses of them     teardown (the end of a context)  default_stream  event  graph_exec ─► capture ─► graph ─► work
//!                    library ─► load ─► function ─► module ─► introduction   physical ─► allocation ─► address      pinned  pointer
//!   the process      current (a thread's context) ─► lifecycle (init, fork, exit) ─► process (its devices)
//!   records          context ─► stream, pool ─► gpu ─► memory ─► mapping
//! ```

pub mod address;
pub mod allocation;
pub mod capture;
pub mod context;
pub mod current;
pub mod default_stream;
pub mod edge;
pub mod event;
pub mod function;
pub mod gpu;
pub mod graph;
pub mod graph_exec;
pub mod introduction;
pub mod library;
pub mod lifecycle;
pub mod link;
pub mod load;
pub mod mapping;
pub mod memory;
pub mod module;
pub mod occupancy;
pub mod physical;
pub mod pinned;
pub mod pointer;
pub mod pool;
pub mod process;
pub mod stream;
pub mod teardown;
pub mod work;
