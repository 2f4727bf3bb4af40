//! A session's part of the GPU: its context, and what is in it. Made when the guest first needs one.
//!
//! ```text
//!  part                 the parts, their start and end, and marks
//!  graph                work that is put together once and launched often
//!  copy   words         guest memory and the GPU's; words that the GPU stores
//!  launch  transfer     kernels; copies and fills within the GPU's memory
//!  streams  lane        order, joins, fences
//!  completion  busy     what happens when work is complete; how long there was any
//!  host_memory staging  registered memory, and buffers
//!  memory, virtual_memory, block  device memory
//!  code   loader        modules, and the thread that loads them
//!  holds                streams that wait for the guest
//!  product  solve  vector  matmul  operand  what cuBLAS computes, and what of memory that reaches
//!  clock  fence         times; points in a stream's work
//!  health               whether the context still works
//! ```

pub(crate) mod block;
pub(crate) mod busy;
pub(crate) mod clock;
pub(crate) mod code;
pub(crate) mod completion;
pub(crate) mod copy;
pub(crate) mod fence;
pub(crate) mod graph;
pub(crate) mod health;
pub(crate) mod holds;
pub(crate) mod host_memory;
pub(crate) mod lane;
pub(crate) mod launch;
pub(crate) mod loader;
mod matmul;
pub(crate) mod memory;
pub(crate) mod operand;
pub(crate) mod part;
pub(crate) mod product;
mod solve;
pub(crate) mod staging;
pub(crate) mod streams;
pub(crate) mod transfer;
mod vector;
pub(crate) mod words;
