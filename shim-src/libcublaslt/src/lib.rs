//! The shim that stands in for libcublasLt: descriptors and products.
//!
//! Descriptors (`record`, `kinds`) are data of this process, with the attributes, sizes and initial values of
//! NVIDIA's libraries of CUDA 12.9 and 13.5. A product (`matmul`) of matrices (`matrix`) by columns or rows
//! becomes the same message as in libcublas where nothing is done to the result (`epilogue`) and C is D or
//! does not count, and a message of its own otherwise, if the host has it. Everything else - scaled narrow
//! types, tiled orders, vectors of factors - is not supported, and the log says so.
//!
//! The feature `cuda13` makes it the library of CUDA 13; else it is that of CUDA 12.

mod descriptors;
mod epilogue;
mod handle;
mod kinds;
mod matmul;
mod matrix;
mod product;
mod record;
mod version;

#[cfg(test)]
mod tests;

#[cfg(test)]
use vgpu_abi::fake::CALLS as LIBCUDA;
#[cfg(not(test))]
use vgpu_abi::link::LINKED as LIBCUDA;

/// The way to libcuda.
static DRIVER: vgpu_abi::blas::Driver = vgpu_abi::blas::Driver::new("cuBLASLt", LIBCUDA);

/// Outcome of a call, or of a part of one.
type Result<T = ()> = std::result::Result<T, vgpu_abi::blas::BlasStatus>;

/// Whether this is the library of CUDA 13.
const CUDA13: bool = cfg!(feature = "cuda13");
