//! The worker process: confinement, the parts of the window that are its session's, and the loop that carries
//! messages out.

pub(crate) mod carry;
pub(crate) mod confine;
pub(crate) mod control;
#[allow(unsafe_code, reason = "maps the session's parts of the window; the crate's only unsafe code")]
pub(crate) mod mapped;
pub(crate) mod reader;
pub(crate) mod run;
pub(crate) mod teller;
