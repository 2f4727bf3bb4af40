//! What executors share out among their sessions: device memory ([`account`]), device addresses ([`space`])
//! and images of code ([`images`]). None of it knows what kind of executor uses it.

pub(crate) mod account;
pub(crate) mod images;
pub(crate) mod space;
