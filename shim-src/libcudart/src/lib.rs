//! The shim that stands in for libcudart: the runtime API over the driver API.
//!
//! It calls the driver API by its names (the object needs `libcuda.so.1`) and nothing else but the
//! private table of [`vgpu_abi::table`], by which it tells that the libcuda it got is this project's.
//! It holds no device and sends no message itself. What it owns:
//!
//! - the process's state (`process`): whether it is initialised, the devices' primary contexts;
//! - each thread's (`thread`): the last error, the device chosen;
//! - what host programs register (`registration`): fatbins, kernels, variables. Bookkeeping, until
//!   the first kernel of a fatbin is launched or asked about; then the fatbin goes to `cuLibraryLoadData`.
//!
//! Everything else is a chapter of CUDA's manual, one file each, that checks what the runtime API checks,
//! sees to a context, and calls the driver. What the driver answers not-supported to, so does this.
//!
//! The feature `cuda13` makes it the library of CUDA 13; else it is that of CUDA 12. Both launch
//! interfaces are in both.

#[macro_use]
mod calls;

mod driver;
mod entries;
mod process;
mod thread;

mod capture;
mod copy;
mod device;
mod error;
mod event;
mod function;
mod graph;
mod host;
mod kernels;
mod launch;
mod library;
mod memory;
mod memset;
mod peer;
mod pointer;
mod pool;
mod properties;
mod registration;
mod stream;
mod symbol;
mod version;
mod writer;

/// Which CUDA this library is of.
const MAJOR: u32 = if cfg!(feature = "cuda13") { 13 } else { 12 };
