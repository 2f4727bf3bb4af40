//! Matrix products and triangular solves: what cuBLAS's calls ask for, carried out on the CPU.
//!
//! [`multiply`] and [`solve`] take the message as the guest sent it. Everything in it is checked first: enumerations, sizes,
//! and that each matrix of each product, each array of addresses and each scalar on the device lies in the session's
//! memory ([`Device`]) and is aligned. Only then is anything read or written. Matrices are column-major.
//!
//! C is cut into tiles, the tiles are shared out among threads, and a tile is the sum of products of small blocks of A and B.
//! Blocks are copied out of device memory, which kernels of the program may write at the same time, into private
//! memory and become numbers of the type that is computed in. The product of two blocks is `ndarray`'s `general_mat_mul`,
//! which is the crate `matrixmultiply` behind a safe interface. The other crate that was looked at, `gemm`, is as fast with
//! blocks of this size (77 against 86 GFLOP/s for 256 by 256 by 256 in single precision on one core of a Zen 3 at 3.5 GHz, the
//! order changing from size to size), but is unsafe to call and takes minutes to build.
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
//! So no compute type is less exact than its name says, and the math mode, the algorithm and the workspace change nothing. A result
//! does not depend on how many threads there are.

mod arithmetic;
mod element;
mod matrix;
mod product;
mod triangle;
mod workers;

#[cfg(test)]
mod tests;

pub use product::multiply;
pub use triangle::solve;
pub use workers::Run;

/// Why a product or a solve was not carried out, or not to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GemmError {
    /// Memory that is not the session's, or that may not be written.
    #[error("{name} of product {index}: {bytes} bytes at device address {address:#x} are not the program's")]
    Illegal {
        /// Which operand.
        name: &'static str,
        /// Which product of the batch.
        index: u64,
        /// Device address.
        address: u64,
        /// How much was asked for; `u64::MAX` stands for more than there can be.
        bytes: u64,
    },
    /// An address that is no multiple of the element's size.
    #[error("{name} of product {index}: device address {address:#x} is no multiple of {alignment}")]
    Misaligned {
        /// Which operand.
        name: &'static str,
        /// Which product of the batch.
        index: u64,
        /// Device address.
        address: u64,
        /// What it should be a multiple of, bytes.
        alignment: u64,
    },
    /// Types that no product is made of here: `cudaDataType` of the matrices (a solve has one), `cublasComputeType_t`,
    /// `cudaDataType` of the scalars.
    #[error("no product of element types {types:?} with compute type {compute} and scale type {scale}")]
    Unsupported {
        /// Element types of A, B, C.
        types: [u32; 3],
        /// Compute type.
        compute: u32,
        /// Type of alpha and beta.
        scale: u32,
    },
    /// A number that cuBLAS takes nowhere; its shim refuses it before it gets here.
    #[error("{name} cannot be {value}")]
    Invalid {
        /// Which number.
        name: &'static str,
        /// Its value.
        value: u64,
    },
    /// The session is being ended, or time is over; C is partly written.
    #[error("matrix product or solve: {0}")]
    Halted(#[from] vgpu_ptx::Halt),
}

impl GemmError {
    /// The `CUresult` that the program is told; `None` if nobody is left to be told.
    #[must_use]
    pub const fn code(&self) -> Option<u32> {
        match self {
            Self::Illegal { .. } => Some(700),
            Self::Misaligned { .. } => Some(716),
            Self::Unsupported { .. } => Some(801),
            Self::Invalid { .. } => Some(1),
            // CUDA_ERROR_LAUNCH_TIMEOUT
            Self::Halted(vgpu_ptx::Halt::TimedOut) => Some(702),
            Self::Halted(vgpu_ptx::Halt::Stopped) => None,
        }
    }

    /// Whether the context is lost to the program, as after a kernel's fault.
    #[must_use]
    pub const fn sticky(&self) -> bool {
        matches!(self, Self::Illegal { .. } | Self::Misaligned { .. } | Self::Halted(_))
    }
}
