//! Safe calls of the host's cuBLAS.
//!
//! Operands are ranges of device memory that the layers above have found to be the session's, as long as the
//! shape of the operand requires. Enumerations travel as the guest sent them; cuBLAS refuses those that it
//! does not know.

mod exports;
pub(crate) mod functions;
pub(crate) mod handle;
pub(crate) mod library;
pub(crate) mod matmul;
pub(crate) mod product;
mod search;
mod solve;
pub(crate) mod vector;
