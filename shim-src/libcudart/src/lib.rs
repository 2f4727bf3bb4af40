//! The shim that stands in for libcudart: the runtime API over the driver API.
//!
//! It calls the driver API by its names (the object needs `libcuda.so.1`) and nothing else but the
//! private table of [`vgpu_abi::table`], by which it tells that the libcuda it got is this project's.
//! It holds no device and sends no message itself. What it owns:
//!
//! ```text
//!   api         the exports, by the chapters of CUDA's manual
//!   copy        copies, in the driver's terms
//!   kernels     from a kernel's stand-in in the program to the driver's kernel
//!   registry    what host programs register: fatbins, kernels, variables ─► entries, writer
//!   process     whether it is initialised, the devices' primary contexts ─► properties
//!   leaves      thread (the last error, the device chosen)  status  address  ptsz
//! ```
//! Registering is bookkeeping, until the first kernel of a fatbin is launched or asked about; then the
//! fatbin goes to `cuLibraryLoadData`.
//!
//! The feature `cuda13` makes it the library of CUDA 13; else it is that of CUDA 12. Both launch
//! interfaces are in both.

#[macro_use]
mod calls;

mod address;
mod api;
mod copy;
mod entries;
mod kernels;
mod process;
mod properties;
mod ptsz;
mod registry;
mod status;
mod thread;
mod writer;

/// Major version of the CUDA release that this library belongs to.
const MAJOR: u32 = if cfg!(feature = "cuda13") { 13 } else { 12 };
