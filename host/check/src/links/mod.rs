//! The links. Each file examines the links of one part of the host.

pub mod driver;
pub mod gpu;
pub mod host;
pub mod vm;
