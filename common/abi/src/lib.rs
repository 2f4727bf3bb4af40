//! Code that the shims share: C types and status codes ([`driver`], [`runtime`], [`blas`], [`nvml`]), the
//! signatures of the driver API ([`driver::functions`]), the macro that makes a Rust function an export
//! ([`export!`]), the implementation of names without one ([`stub`]), the log ([`log`]), the private table by
//! which the other shims use libcuda ([`table`]) and the access to it ([`link`]).
//!
//! `symbols/` holds the complete lists of names and version nodes. The linking step compares them with the
//! names that a shim defines and generates a stub for each of the others.

#[macro_use]
mod declare;

pub mod blas;
mod calls;
pub mod driver;
pub mod export;
pub mod fake;
pub mod link;
pub mod log;
pub mod nvml;
pub mod runtime;
pub mod stub;
pub mod table;

pub use driver::CUresult;
