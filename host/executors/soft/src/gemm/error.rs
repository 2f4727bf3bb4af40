//! Errors of matrix products, solves and vector operations.

use vgpu_ptx::Halt;

/// Reason for which a product, a solve or a vector operation was refused or ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GemmError {
    /// An access to memory that does not belong to the session, or that may not be written.
    #[error("{name} of product {index}: {bytes} bytes at device address {address:#x} are not the program's")]
    Illegal {
        /// Name of the operand.
        name: &'static str,
        /// Index of the product in the batch.
        index: u64,
        /// Device address of the first byte.
        address: u64,
        /// Number of bytes that were accessed; `u64::MAX` if their number exceeds 64 bits or the address
        /// does.
        bytes: u64,
    },
    /// The address of an element is not a multiple of its size.
    #[error("{name} of product {index}: device address {address:#x} is no multiple of {alignment}")]
    Misaligned {
        /// Name of the operand.
        name: &'static str,
        /// Index of the product in the batch.
        index: u64,
        /// Device address of the element that is misaligned.
        address: u64,
        /// Required alignment of the address, in bytes.
        alignment: u64,
    },
    /// No product is supported for these types: the `cudaDataType` of the matrices (a solve has one), the
    /// `cublasComputeType_t`, and the `cudaDataType` of the scalars.
    #[error("no product of element types {types:?} with compute type {compute} and scale type {scale}")]
    Unsupported {
        /// Element types of A, B and C, as `cudaDataType`.
        types: [u32; 3],
        /// Compute type of the product, a `cublasComputeType_t`.
        compute: u32,
        /// Type of alpha and beta, as `cudaDataType`.
        scale: u32,
    },
    /// A number that no cuBLAS call accepts. The cuBLAS shim refuses it before it sends a message.
    #[error("{name} cannot be {value}")]
    Invalid {
        /// Name of the number.
        name: &'static str,
        /// The value that was given.
        value: u64,
    },
    /// The session is ending, or the time limit was reached. C is partly written.
    #[error("matrix product or solve: {0}")]
    Halted(#[from] Halt),
}

impl GemmError {
    /// Returns the `CUresult` that the program gets. Returns `None` if the session is ending: its program
    /// gets no result any more.
    #[must_use]
    pub const fn code(&self) -> Option<u32> {
        match self {
            Self::Illegal { .. } => Some(700),
            Self::Misaligned { .. } => Some(716),
            Self::Unsupported { .. } => Some(801),
            Self::Invalid { .. } => Some(1),
            // CUDA_ERROR_LAUNCH_TIMEOUT
            Self::Halted(Halt::TimedOut) => Some(702),
            Self::Halted(Halt::Stopped) => None,
        }
    }

    /// Returns whether the program loses its context, as it does after a kernel's fault.
    #[must_use]
    pub const fn sticky(&self) -> bool {
        matches!(self, Self::Illegal { .. } | Self::Misaligned { .. } | Self::Halted(_))
    }
}
