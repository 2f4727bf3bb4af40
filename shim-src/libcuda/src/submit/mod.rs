//! Work that is submitted to a stream, checked and encoded as messages, and waits for a stream.
//!
//! Everything goes through [`stream`], where a capture takes the message instead of the host.

pub mod copy;
pub mod copy3d;
pub mod fill;
pub mod foreign;
pub mod graph_node;
pub mod host_function;
pub mod launch;
pub mod mode;
pub mod route;
pub mod stream;
pub mod transfer;
pub mod vector;
