//! What executors share out among their sessions: device memory ([`account`]), device addresses ([`space`])
//! and images of code ([`images`]); a session's streams, events and holds ([`handle_table`]) and its modules
//! ([`modules`]); inputs of links ([`links`]); what operands of products reach of memory
//! ([`matrix`]). None of it knows what kind of executor uses it.

pub(crate) mod account;
pub(crate) mod handle_table;
pub(crate) mod images;
pub(crate) mod links;
pub(crate) mod matrix;
pub(crate) mod modules;
pub(crate) mod space;
