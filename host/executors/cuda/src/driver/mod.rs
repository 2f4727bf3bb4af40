//! The host's libcuda, as calls that cannot be made wrongly: the only module of this crate with unsafe code.
//!
//! ```text
//!  graph               work that is put together once and launched often
//!  code   link   blas  kernels of the guest's images; the linker; products
//!  stream   event      work, and when it is complete
//!  host     range      memory of the host that the GPU reaches, and of the GPU
//!  context
//!  device              what can be asked without a context
//!  library             the functions, found when the library is loaded
//!  error    sticky
//! ```
//!
//! What the driver is handed is right by construction. A handle belongs to a value that destroys it when it
//! is dropped and keeps its context. Memory of the host is what this module allocated, or a
//! [`Grant`](vgpu_device::Grant) of a session, which stays mapped. Device addresses lie in a range that this
//! module reserved or that the driver named ([`range::DeviceRange`]): some GPUs reach all memory of a
//! process, and no number that a guest made up may lead there. What a kernel does with its parameters nobody
//! checks; the worker process is the wall for that.
//!
//! Most calls need their context to be current in the calling thread ([`context::Context::enter`]). Without
//! it the driver refuses them, and nothing worse happens.

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
pub(crate) mod range;
pub(crate) mod sticky;
pub(crate) mod stream;
