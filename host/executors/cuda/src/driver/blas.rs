//! The host's cuBLAS, as calls that cannot be made wrongly.
//!
//! Operands are ranges of device memory that the layers above have found to be the session's: as many bytes
//! as the shape of the operand reaches. Enumerations travel as the guest sent them, and cuBLAS refuses those
//! that it does not know.

pub(crate) mod functions;
pub(crate) mod handle;
pub(crate) mod library;
pub(crate) mod matmul;
pub(crate) mod product;
mod solve;
pub(crate) mod vector;
