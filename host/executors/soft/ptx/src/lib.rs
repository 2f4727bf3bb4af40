//! Front end for PTX: from a module's text to kernels that engines can run.
//!
//! [`Module::parse`] reads a module's declarations. [`Module::kernel`] parses one kernel to the control-flow
//! graph that [`ir`] describes. [`analysis`] finds what an engine may assume about a kernel's registers. This
//! crate runs no kernel.

#![forbid(unsafe_code)]

pub mod analysis;
mod effort;
mod error;
mod interrupt;
pub mod ir;
mod kernel;
mod lex;
mod link;
mod literal;
mod module;
mod symbol;
mod variable;

pub use effort::{BYTES_MOST, Effort, STEPS_MOST, Spent};
pub use error::PtxError;
pub use interrupt::{Halt, Interrupt};
pub use link::{Input, LinkError, link};
pub use module::{Global, Linkage, Module, Relocation, TEXT_MOST};
