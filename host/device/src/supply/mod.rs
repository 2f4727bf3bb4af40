//! What executors share out among their sessions: device memory ([`account`]) and images of code
//! ([`images`]); a session's streams, events and holds ([`handle_table`]) and its modules ([`modules`]);
//! inputs of links ([`links`]); the memory that operands of products cover ([`matrix`]). None of it knows the
//! kind of executor that uses it.

pub(crate) mod handle_table;
pub(crate) mod images;
pub(crate) mod links;
pub(crate) mod matrix;
pub(crate) mod memory_pool;
pub(crate) mod modules;
