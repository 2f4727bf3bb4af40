//! The shim that stands in for libcudart: the runtime API over the driver API.
//!
//! It calls the driver API by its names, so the object needs `libcuda.so.1`. Beside that it uses only the
//! private table of [`vgpu_abi::table`], by which it recognises this project's libcuda. It holds no device
//! and sends no message itself. It owns:
//!
//! ```text
//!   api         the exports, by the chapters of CUDA's manual
//!   copy        copies, in the driver's terms
//!   kernels     from a kernel's stand-in in the program to the driver's kernel
//!   registry    what host programs register: fatbins, kernels, variables ─► entries, writer
//!   process     whether it is initialised, the devices' primary contexts ─► properties
//!   leaves      thread (the last error, the device chosen)  status  address  ptsz
//! ```
//! Registration is bookkeeping until the first kernel or variable of a fat binary is used. Then the fat
//! binary is loaded by `cuLibraryLoadData`.
//!
//! With the feature `cuda13` it is the library of CUDA 13, otherwise that of CUDA 12. Both have the launch
//! interfaces of both.

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
