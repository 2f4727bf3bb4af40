//! What executors share out among their sessions: device memory ([`account`]), device addresses ([`space`])
//! and images of code ([`images`]); inputs of links ([`links`]); what operands of products reach of memory
//! ([`matrix`]). None of it knows what kind of executor uses it.

pub(crate) mod account;
pub(crate) mod images;
pub(crate) mod links;
pub(crate) mod matrix;
pub(crate) mod space;
