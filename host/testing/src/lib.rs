//! Support for tests and examples of the host's crates.
//!
//! [`guest::Guest`] is a guest process without shims, whose messages a test writes by hand. [`bench::Bench`]
//! is a bus with one device in a temporary directory. [`commands`] sends the messages that most tests need,
//! and [`parking::Parking`] has work stand still. [`reload::Reloadable`] is a device without a bus that is saved
//! and restored. All of them panic where a test has to fail.

#![forbid(unsafe_code)]

pub mod bench;
pub mod commands;
pub mod guest;
pub mod parking;
pub mod reload;
