//! A session as its executor and the device know it: [`host::SessionHost`], the memory that it owns, and the
//! fields that the guest reads.

pub(crate) mod gauges;
pub(crate) mod grant;
pub(crate) mod host;
pub(crate) mod memory;
pub(crate) mod register_page;
pub(crate) mod remote;
pub(crate) mod return_area;
pub(crate) mod settled;
pub(crate) mod stats;
pub(crate) mod violation;
pub(crate) mod worker_session;
