//! The device's process: the executor that starts workers, its sessions, and the thread that watches each
//! worker.

pub(crate) mod accounts;
pub(crate) mod common;
pub(crate) mod executor;
pub(crate) mod keeper;
pub(crate) mod link;
pub(crate) mod producer;
pub(crate) mod session;
pub(crate) mod spawn;
