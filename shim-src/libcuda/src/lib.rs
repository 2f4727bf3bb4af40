//! The shim that stands in for libcuda, and the only one that talks to the device. Chapters have CUDA's own names.
//!
//! ```text
//!   exports        init device context primary stream event memory pool pinned copy rows fill foreign pointer virtual_memory
//!                  module library function launch host_function capture graph graph_exec graph_node error entry table profiler
//!   a device       process (which there are) ─► gpu (its session) ─► lane (order and completion of streams)
//!   code           image ─► fatbin ptx cubin ─► layout (parameters of kernels)  refusal jit_log
//!   underneath     life (process, fork, exit)  slab (handles)  arg (pointers)  visible  sync  both
//! ```
//! State is answered here, without a message. What the host does is told in messages that nobody waits for,
//! but for memory, the first use of code, and copies back. A host's late errors are answered by the next call that may.

#[macro_use]
mod both;

mod arg;
mod capture;
mod context;
mod copy;
mod device;
mod entry;
mod error;
mod event;
mod fill;
mod foreign;
mod function;
mod gpu;
mod graph;
mod graph_exec;
mod graph_node;
mod host_function;
mod image;
mod init;
mod jit_log;
mod lane;
mod launch;
mod layout;
mod library;
mod life;
mod mapping;
mod memory;
mod module;
mod pinned;
mod pointer;
mod pool;
mod primary;
mod process;
mod profiler;
#[cfg(test)]
mod real_images;
mod refusal;
mod rows;
mod slab;
mod stream;
mod sync;
mod table;
mod virtual_memory;
mod visible;
mod work;

use vgpu_image::{cubin, fatbin, ptx};

/// What a call of the driver API comes to: nothing, or the status to be answered.
type Result<T = ()> = std::result::Result<T, vgpu_abi::CUresult>;
