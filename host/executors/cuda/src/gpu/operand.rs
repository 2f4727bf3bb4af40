//! Operands of products: whether all that they reach is the session's memory.

use vgpu_abi::CUresult;
use vgpu_abi::blas::element_bytes;
use vgpu_device::{MatrixShape, Strided};

use crate::driver::range::DeviceRange;
use crate::gpu::memory::Memory;

/// Matrices of a batch that are looked up one by one, where they do not lie in one allocation.
const SCATTERED_MOST: u32 = 4096;
/// Size and alignment of an address in an array of addresses, bytes.
const ADDRESS: u64 = 8;

/// Why an operand cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum OperandError {
    /// Memory that is not the session's.
    #[error("{name} of a product: {bytes} bytes at device address {address:#x} are not the session's")]
    Illegal {
        /// The operand.
        name: &'static str,
        /// Its first address, or that of the first of a batch.
        address: u64,
        /// How many bytes it reaches; `u64::MAX` if that exceeds what can be counted.
        bytes: u64,
    },
    /// An address that is no multiple of the element's size.
    #[error("{name} of a product: device address {address:#x} is no multiple of {alignment}")]
    Misaligned {
        /// The operand.
        name: &'static str,
        /// Its address.
        address: u64,
        /// The element's size, bytes.
        alignment: u64,
    },
    /// A number that no call of cuBLAS accepts, and that the guest's cuBLAS does not send.
    #[error("{name} of a product cannot be {value}")]
    Invalid {
        /// What the number is.
        name: &'static str,
        /// The number.
        value: u64,
    },
    /// An element type without a size, a `cudaDataType`.
    #[error("no product of elements of type {0}")]
    Type(u32),
}

impl OperandError {
    /// The `CUresult` for the guest. Those that a kernel would have found end the session's context.
    pub(crate) const fn code(&self) -> CUresult {
        match self {
            Self::Illegal { .. } => CUresult::ILLEGAL_ADDRESS,
            Self::Misaligned { .. } => CUresult::MISALIGNED_ADDRESS,
            Self::Invalid { .. } => CUresult::INVALID_VALUE,
            Self::Type(_) => CUresult::NOT_SUPPORTED,
        }
    }
}

/// Bytes of an element.
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

impl Memory {
    /// `bytes` at `address`, which is a multiple of `alignment`.
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

    /// An array of `count` addresses. What they name is not looked at: it is in device memory, and may change
    /// before the work is done.
    pub(crate) fn addresses(
        &self,
        name: &'static str,
        address: u64,
        count: u32,
    ) -> Result<DeviceRange, OperandError> {
        self.operand(name, address, u64::from(count) * ADDRESS, ADDRESS)
    }

    /// The first of `count` matrices, all of which are the session's. There is one at least.
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
            // Between the matrices there may be memory that is nobody's.
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
