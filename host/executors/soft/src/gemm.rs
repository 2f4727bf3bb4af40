//! Matrix products, triangular solves and operations on vectors: the calls of cuBLAS and cuBLASLt, computed
//! on the CPU.
//!
//! [`multiply`], [`matmul`], [`solve`] and [`vector`] take the message as the guest sent it. They first check
//! everything in it: enumerations, sizes, and that each matrix of each product, each array of addresses and
//! each scalar on the device is aligned and lies in the session's memory. Only then do they read or write
//! anything. Matrices are column-major.
//!
//! C is cut into tiles, threads share the tiles, and a tile is the sum of products of small blocks of A and
//! B. Blocks are copied out of device memory, which kernels of the program may write at the same time, into
//! private memory, and converted to the type in which the sum is computed. The product of two blocks is
//! `ndarray`'s `general_mat_mul`, which is the crate `matrixmultiply` behind a safe interface. The crate
//! `gemm` is as fast with blocks of this size (77 against 86 GFLOP/s for 256 by 256 by 256 in single
//! precision on one core of a Zen 3 at 3.5 GHz, the order changing from size to size), but is unsafe to call
//! and takes minutes to build.
//!
//! # Precision
//!
//! | compute type of cuBLAS | summed in | rounded |
//! | --- | --- | --- |
//! | `32F`, pedantic, `FAST_16F`, `FAST_16BF`, `FAST_TF32`, `EMULATED_16BFX9` | f32 | to C's type once |
//! | `16F` (f16 scalars) | f32, more than required | to f16 once |
//! | `64F`, pedantic, `EMULATED_FIXEDPOINT` | f64 | |
//! | `32I` | f64, exactly: no sum of products of bytes exceeds 2^53 before k exceeds 2^39 | modulo 2^32 |
//!
//! Epilogues work on the sums before they are rounded; GELU and its derivative are computed in f64.
//! Operations on vectors sum in f64.
//!
//! So no compute type is less exact than its name says, and the math mode, the algorithm and the workspace
//! change nothing. A result does not depend on how many threads there are.

mod activation;
mod arithmetic;
mod element;
mod error;
mod matmul;
mod matrix;
mod product;
mod sums;
mod triangle;
mod vector;
mod workers;

#[cfg(test)]
mod tests;

pub use error::GemmError;
pub use matmul::matmul;
pub use product::multiply;
pub use triangle::solve;
pub use vector::vector;
pub use workers::Run;
