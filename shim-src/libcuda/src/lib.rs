//! The shim that stands in for libcuda, and the only one that talks to the device.
//!
//! ```text
//!   api        the exports, by the chapters of CUDA's manual
//!   submit     what is put on a stream: launches, copies, fills, functions of the host; waiting for a stream
//!   object     contexts, streams, events, graphs, modules and memory, as the guest knows them; the devices
//!   queue      the session with a device; the order of a stream's work, and when it is complete
//!   code       images, layouts of parameters, the compiler's logs
//!   leaves     slab (handles)  ptsz (default streams)  sync  visible  entry_point  pinned_ranges
//! ```
//! Each layer uses those below it. Queries of state are answered here, without a message. Work is sent in
//! messages that no thread waits for, except allocations, the first use of code, and downloads. An error that
//! the host reports late is returned by the next call that CUDA allows to return it.

#[macro_use(exports)]
extern crate vgpu_abi;

#[macro_use]
mod ptsz;

mod api;
mod code;
mod entry_point;
mod object;
mod pci_bus_id;
mod pinned_ranges;
mod queue;
mod slab;
mod submit;
mod sync;
mod visible;

use vgpu_abi::driver::arg;
use vgpu_image::{cubin, fatbin, ptx};

/// Result of a driver call, whose error is the status to be returned.
type Result<T = ()> = std::result::Result<T, vgpu_abi::CUresult>;
