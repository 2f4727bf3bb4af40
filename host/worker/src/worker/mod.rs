//! The half of the worker process: confinement, the mapped parts of the window, and the loop that carries out
//! messages.

pub(crate) mod carry;
pub(crate) mod confine;
pub(crate) mod control;
#[allow(unsafe_code, reason = "handles a signal, whose state the kernel passes by address")]
mod explain;
pub(crate) mod life;
mod refused;
pub(crate) mod reporter;
pub(crate) mod ring_reader;
#[allow(unsafe_code, reason = "maps the session's parts of the window")]
pub(crate) mod window_mapping;
