//! Tests of the driver shim against a device: each test runs in a guest process of its own (see `host`),
//! linked with the shim as a library. What every libcuda has to do is stated by `vgpu-conformance` and runs
//! in `conformance`; the other modules test what only this shim does: messages, limits, logs and hosts that
//! lack something.

#![allow(clippy::macro_metavars_in_unsafe, reason = "the arguments of a test's calls are safe code")]

mod absent;
mod addresses;
mod code;
mod conformance;
mod counts;
mod discovery;
mod executor;
mod host;
mod life;
mod linked;
mod memory;
mod refusals;
mod streams;
mod trouble;
mod variables;
