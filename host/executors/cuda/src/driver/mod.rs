//! Safe calls of the host's libcuda. This is the only module of the crate with unsafe code.
//!
//! ```text
//!  graph             work that is captured once and launched often
//!  code, link, blas  kernels of the guest's images; the linker; products
//!  stream, event     work, and its completion
//!  host, range       host memory that the GPU can access, and device memory
//!  context           contexts, and which of them is current in a thread
//!  device            queries that need no context
//!  library           the functions, found when the library is loaded
//!  error, sticky     errors, and which of them lose the context
//!  under_lock        calls made under a lock
//! ```
//!
//! Arguments of the driver are valid by construction. A handle belongs to a value that destroys it when it is
//! dropped and keeps its context alive. Host memory is allocated by this module, or is a
//! [`Grant`](vgpu_device::Grant) of a session, which stays mapped. Device addresses lie in a range that this
//! module reserved or that the driver returned ([`range::DeviceRange`]), because some GPUs can access all
//! memory of a process and must not follow a number that a guest made up. Nothing checks what a kernel does
//! with its parameters; the worker process isolates its effects.
//!
//! Most calls need their context to be current in the calling thread ([`context::DriverContext::enter`]).
//! Without it the driver refuses them, which is harmless.

#![allow(unsafe_code, reason = "the driver is C")]

pub(crate) mod blas;
pub(crate) mod code;
pub(crate) mod context;
pub(crate) mod device;
pub(crate) mod error;
pub(crate) mod event;
pub(crate) mod graph;
pub(crate) mod host;
pub(crate) mod library;
pub(crate) mod link;
pub(crate) mod nvml;
pub(crate) mod range;
pub(crate) mod sticky;
pub(crate) mod stream;
pub(crate) mod under_lock;
