//! The work submitted to the host: the order in which the host executes it, and when it is known to have
//! completed.
//!
//! [`submission`] is the session with a device and the state that all its streams share. [`timeline`] is the
//! order of one stream's work. [`pending`] lists the fence points that a synchronize has to wait for, because
//! the host still uses the program's memory. [`holds`] lists the host functions that have not returned yet.
//! [`late`] describes why work failed.

pub mod holds;
pub mod late;
pub mod pending;
pub mod submission;
pub mod timeline;
