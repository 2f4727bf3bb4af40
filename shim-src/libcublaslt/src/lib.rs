//! The shim that stands in for libcublasLt: descriptors, and matrix products with epilogues.
//!
//! Descriptors (`record`, `kinds`, `descriptors`) are data of this process, with the attributes, sizes and
//! initial values of NVIDIA's libraries of CUDA 12.9 and 13.5. A product (`matmul`, `product`) of matrices
//! (`matrix`) by columns or by rows becomes the same message as in libcublas if it has no epilogue
//! (`epilogue`) and C is D or is multiplied by zero. Otherwise it becomes a message of its own, if the host
//! knows that. Scaled narrow types, tiled orders and vectors of factors are not supported, and the log says
//! so.
//!
//! With the feature `cuda13` this is the library of CUDA 13, without it that of CUDA 12.

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

/// Entry points of libcuda's private table, resolved at the first call that needs one.
static DRIVER: vgpu_abi::blas::Driver = vgpu_abi::blas::Driver::new("cuBLASLt", LIBCUDA);

/// Outcome of a call or of a part of one: a value, or the `cublasStatus_t` to return.
type Result<T = ()> = std::result::Result<T, vgpu_abi::blas::BlasStatus>;

/// Whether this is the library of CUDA 13.
const CUDA13: bool = cfg!(feature = "cuda13");
