//! State of a session on the GPU: its context and everything in it. It is created when the guest first needs
//! it.
//!
//! ```text
//!  gpu_session                    creation and destruction of the state; marks
//!  graph                          work that is captured once and launched often
//!  copy, words                    copies of guest memory; words that the GPU stores
//!  launch, transfer               kernels; copies and fills within the GPU's memory
//!  streams, stream_state          order, joins and fences of streams
//!  completion, busy               actions when work is complete; the time of the work
//!  host_memory, staging           registered memory, and staging buffers
//!  memory, virtual_memory, block  device memory
//!  code, loader                   modules, and the thread that loads them
//!  holds, waiting_work            streams that wait for the guest, and the work behind them
//!  product, solve, vector, matmul, operand
//!                                 operations of cuBLAS, and checks of their operands
//!  clock, fence                   times; points in a stream's work
//!  health                         whether the context still works
//! ```

pub(crate) mod block;
pub(crate) mod busy;
pub(crate) mod clock;
pub(crate) mod code;
pub(crate) mod code_memory;
pub(crate) mod completion;
pub(crate) mod copy;
pub(crate) mod fence;
pub(crate) mod gpu_session;
pub(crate) mod graph;
pub(crate) mod health;
pub(crate) mod holds;
pub(crate) mod host_memory;
pub(crate) mod launch;
pub(crate) mod loader;
mod matmul;
pub(crate) mod memory;
pub(crate) mod operand;
pub(crate) mod product;
mod solve;
pub(crate) mod staging;
pub(crate) mod stream_state;
pub(crate) mod streams;
pub(crate) mod transfer;
mod vector;
mod waiting_work;
pub(crate) mod words;
