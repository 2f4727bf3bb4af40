//! The shim that stands in for libcublas: matrix products, triangular solves and vector operations as
//! messages.
//!
//! A handle (`handle`, `settings`) is state of this process: stream, modes, workspace. Setting and reading it
//! sends nothing. A product (`product`, and `vector` for those with vectors) or a solve (`solve`) is checked
//! here as cuBLAS checks it and becomes one message through libcuda's private table ([`vgpu_abi::table`]; the
//! object needs `libcuda.so.1`). Nobody waits for it, except for sums (`reduce`) that the program wants in
//! host memory. What cuBLAS refuses is refused here, with its status; whether the device can do the rest is
//! for the host to say.
//!
//! Where the manual leaves open which check comes first, or differs from the libraries, NVIDIA's libraries of
//! CUDA 12.9 and 13.5 were asked.
//!
//! With the feature `cuda13` this is the library of CUDA 13, without it that of CUDA 12.

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

/// Entry points of libcuda's private table, resolved at the first call that needs one.
static DRIVER: vgpu_abi::blas::Driver = vgpu_abi::blas::Driver::new("cuBLAS", LIBCUDA);

/// Outcome of a call or of a part of one: a value, or the `cublasStatus_t` to return.
type Result<T = ()> = std::result::Result<T, vgpu_abi::blas::BlasStatus>;

/// Whether this is the library of CUDA 13.
const CUDA13: bool = cfg!(feature = "cuda13");
