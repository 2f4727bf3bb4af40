//! Matrix products, triangular solves and vector operations: the calls of cuBLAS and cuBLASLt, computed on
//! the CPU.
//!
//! [`multiply`], [`matmul`], [`solve`] and [`vector`] take the message as the guest sent it. They first check
//! everything in it: enumerations, sizes, and that each matrix of each product, each array of addresses and
//! each scalar on the device is aligned and lies in the session's memory. Only then do they read or write
//! device memory. Matrices are column-major.
//!
//! C is divided into tiles, which threads share. A tile is the sum of products of small blocks of A and B.
//! Blocks are copied from device memory, which kernels of the program may write at the same time, to private
//! memory, and converted to the type in which the sum is computed. `ndarray`'s `general_mat_mul` multiplies
//! two blocks; it is the crate `matrixmultiply` behind a safe interface. The crate `gemm` is about as fast
//! with blocks of this size (86 against 77 GFLOP/s for 256 by 256 by 256 in single precision on one core of a
//! Zen 3 at 3.5 GHz), but its interface is unsafe and it takes minutes to build.
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
//! No compute type is less exact than its name says. The math mode, the algorithm and the workspace have no
//! effect, and results do not depend on the number of threads.

mod activation;
mod arithmetic;
mod element;
mod epilogue;
mod error;
mod matmul;
mod matrix;
mod product;
mod triangle;
mod vector;
mod workers;

#[cfg(test)]
mod tests;

pub use error::GemmError;
pub use matmul::{matmul, multiply};
pub use triangle::solve;
pub use vector::vector;
pub use workers::Workers;
