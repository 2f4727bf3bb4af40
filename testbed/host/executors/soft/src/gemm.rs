//! Matrix products and triangular solves: what cuBLAS's calls ask for, carried out on the CPU.
//!
//! [`multiply`] and [`solve`] take the message as the guest sent it. Everything in it is checked first:
//! enumerations, sizes, and that each matrix of each product, each array of addresses and each scalar on the
//! device lies in the session's memory ([`Device`]) and is aligned. Only then is anything read or written.
//! Matrices are column-major.
//!
//! C is cut into tiles, the tiles are shared out among threads, and a tile is the sum of products of small
//! blocks of A and B. Blocks are copied out of device memory, which kernels of the program may write at the
//! same time, into private memory and become numbers of the type that is computed in. The product of two
//! blocks is `ndarray`'s `general_mat_mul`, which is the crate `matrixmultiply` behind a safe interface. The
//! other crate that was looked at, `gemm`, is as fast with blocks of this size (77 against 86 GFLOP/s for 256
//! by 256 by 256 in single precision on one core of a Zen 3 at 3.5 GHz, the order changing from size to
//! size), but is unsafe to call and takes minutes to build.
//!
//! # How exact
//!
//! | cuBLAS's compute type | is summed in | rounded |
//! | --- | --- | --- |
//! | `32F`, pedantic, `FAST_16F`, `FAST_16BF`, `FAST_TF32`, `EMULATED_16BFX9` | f32 | to C's type once |
//! | `16F` (f16 scalars) | f32, more than is asked for | to f16 once |
//! | `64F`, pedantic, `EMULATED_FIXEDPOINT` | f64 | |
//! | `32I` | f64, exactly: no sum of products of bytes exceeds 2^53 before k exceeds 2^39 | modulo 2^32 |
//!
//! So no compute type is less exact than its name says, and the math mode, the algorithm and the workspace
//! change nothing. A result does not depend on how many threads there are.

mod arithmetic;
mod element;
mod error;
mod matrix;
mod product;
mod triangle;
mod workers;

#[cfg(test)]
mod tests;

pub use error::GemmError;
pub use product::multiply;
pub use triangle::solve;
pub use workers::Run;
