//! The links: each file examines those that have to do with one part of the host.

pub mod driver;
pub mod gpu;
pub mod host;
pub mod vm;
