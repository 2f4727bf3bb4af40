//! The shim that stands in for libcublas: matrix products, triangular solves and operations on vectors as
//! messages.
//!
//! A handle is state of this process (`handle`): stream, modes, workspace. Setting and asking sends
//! nothing. A product (`product`, and `vector` for those with vectors) or a solve (`solve`) is checked here as cuBLAS
//! checks it and becomes one message through libcuda's private table ([`vgpu_abi::table`]; the object needs
//! `libcuda.so.1`), which nobody waits for, but for sums (`reduce`) that the program wants in its own memory.
//! What cuBLAS refuses is refused here, with its status; whether the device behind can do the rest is for the
//! host to say.
//!
//! Where the manual leaves open what comes first, or says other than the libraries do, NVIDIA's libraries of CUDA 12.9
//! and 13.5 were asked.
//!
//! The feature `cuda13` makes it the library of CUDA 13; else it is that of CUDA 12.

mod gemm;
mod gemm_ex;
mod handle;
mod product;
mod reduce;
mod settings;
mod solve;
mod vector;
mod version;

#[cfg(test)]
mod tests;

#[cfg(test)]
use vgpu_abi::fake::CALLS as LIBCUDA;
#[cfg(not(test))]
use vgpu_abi::link::LINKED as LIBCUDA;

/// The way to libcuda.
static DRIVER: vgpu_abi::blas::Driver = vgpu_abi::blas::Driver::new("cuBLAS", LIBCUDA);

/// Outcome of a call, or of a part of one.
type Result<T = ()> = std::result::Result<T, vgpu_abi::blas::BlasStatus>;

/// Whether this is the library of CUDA 13.
const CUDA13: bool = cfg!(feature = "cuda13");
