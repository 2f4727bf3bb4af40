//! The driver API against a device: each test runs in a guest process of its own (see `host`), linked with
//! the shim as a library.

#![allow(clippy::macro_metavars_in_unsafe, reason = "the arguments of a test's calls are safe code")]

#[macro_use]
mod cuda;

mod addresses;
mod callbacks;
mod capture;
mod code;
mod counts;
mod devices;
mod discovery;
mod executor;
mod host;
mod life;
mod links;
mod memory;
mod pools;
mod products;
mod refusals;
mod streams;
mod trouble;
mod variables;
mod virtual_memory;
