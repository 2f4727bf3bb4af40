//! Operands of products: checks that the session owns everything that they reach.

use vgpu_abi::CUresult;
use vgpu_abi::blas::element_bytes;
use vgpu_device::{MatrixShape, Strided};

use crate::driver::range::DeviceRange;
use crate::gpu::memory::DeviceMemory;

/// Number of matrices of a batch that are looked up one by one if they are not in one allocation.
const SCATTERED_MOST: u32 = 4096;
/// Size and alignment in bytes of an address in an array of addresses.
const ADDRESS: u64 = 8;

/// Reason for which an operand cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum OperandError {
    /// The session does not own the memory.
    #[error("{name} of a product: {bytes} bytes at device address {address:#x} are not the session's")]
    Illegal {
        /// Name of the operand.
        name: &'static str,
        /// First address of the operand, or of the first matrix of a batch.
        address: u64,
        /// Number of bytes that the operand covers, or `u64::MAX` if the number overflows.
        bytes: u64,
    },
    /// The address is not a multiple of the element's size.
    #[error("{name} of a product: device address {address:#x} is no multiple of {alignment}")]
    Misaligned {
        /// Name of the operand.
        name: &'static str,
        /// Address of the operand.
        address: u64,
        /// Required alignment in bytes, which is the size of an element.
        alignment: u64,
    },
    /// The number is one that no call of cuBLAS accepts, and that the guest's cuBLAS never sends.
    #[error("{name} of a product cannot be {value}")]
    Invalid {
        /// Name of the argument.
        name: &'static str,
        /// Value of the argument.
        value: u64,
    },
    /// The element type, a `cudaDataType`, has no known size.
    #[error("no product of elements of type {0}")]
    Type(u32),
}

impl OperandError {
    /// Returns the `CUresult` for the guest. Errors that a kernel would have found lose the session's
    /// context.
    pub(crate) const fn code(&self) -> CUresult {
        match self {
            Self::Illegal { .. } => CUresult::ILLEGAL_ADDRESS,
            Self::Misaligned { .. } => CUresult::MISALIGNED_ADDRESS,
            Self::Invalid { .. } => CUresult::INVALID_VALUE,
            Self::Type(_) => CUresult::NOT_SUPPORTED,
        }
    }
}

/// Returns the size of an element in bytes.
pub(crate) fn element(kind: u32) -> Result<u64, OperandError> {
    element_bytes(kind as i32).ok_or(OperandError::Type(kind))
}

/// Refuses a leading dimension that is smaller than a column.
pub(crate) fn fits(shape: MatrixShape) -> Result<MatrixShape, OperandError> {
    if shape.fits() {
        Ok(shape)
    } else {
        Err(OperandError::Invalid { name: "a leading dimension", value: shape.leading })
    }
}

impl DeviceMemory {
    /// Returns the range of `bytes` at `address`, which must be a multiple of `alignment`.
    pub(crate) fn operand(
        &self,
        name: &'static str,
        address: u64,
        bytes: u64,
        alignment: u64,
    ) -> Result<DeviceRange, OperandError> {
        if !address.is_multiple_of(alignment) {
            return Err(OperandError::Misaligned { name, address, alignment });
        }
        self.find(address, bytes).ok_or(OperandError::Illegal { name, address, bytes })
    }

    /// Returns the range of an array of `count` addresses. The addresses in it are not checked: they are in
    /// device memory and may change before the work runs.
    pub(crate) fn addresses(
        &self,
        name: &'static str,
        address: u64,
        count: u32,
    ) -> Result<DeviceRange, OperandError> {
        self.operand(name, address, u64::from(count) * ADDRESS, ADDRESS)
    }

    /// Returns the range of the first of `count` matrices, at least one. The session must own all of them.
    pub(crate) fn matrices(
        &self,
        name: &'static str,
        place: Strided,
        shape: MatrixShape,
        count: u32,
    ) -> Result<DeviceRange, OperandError> {
        let nowhere = OperandError::Illegal { name, address: place.address, bytes: u64::MAX };
        let bytes = shape.bytes().ok_or(nowhere)?;
        let first = self.operand(name, place.address, bytes, shape.element)?;
        if count == 1 {
            return Ok(first);
        }
        let (start, all) = place.all(count.into(), bytes).ok_or(nowhere)?;
        if self.find(start, all).is_none() {
            // The memory between the matrices need not belong to anybody.
            if count > SCATTERED_MOST {
                return Err(OperandError::Illegal { name, address: start, bytes: all });
            }
            for index in 1..count {
                let address = place.at(index.into()).ok_or(nowhere)?;
                self.operand(name, address, bytes, shape.element)?;
            }
        }
        Ok(first)
    }
}
