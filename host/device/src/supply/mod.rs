//! Services that executors share: device memory ([`memory_pool`]) and images of code ([`images`]); a
//! session's streams, events and holds ([`handle_table`]) and its modules ([`modules`]); inputs of links
//! ([`links`]); the memory that operands of products cover ([`matrix`]). They do not depend on the kind of
//! executor.

pub(crate) mod handle_table;
pub(crate) mod images;
pub(crate) mod links;
pub(crate) mod matrix;
pub(crate) mod memory_pool;
pub(crate) mod modules;
