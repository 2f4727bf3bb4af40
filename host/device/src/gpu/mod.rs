//! A GPU in software: its configuration ([`config`]), and the facts that guests read about it, derived from
//! the configuration ([`facts`]) and the table of device attributes ([`attributes`]). Its device addresses
//! ([`addresses`]) belong to no other device ([`claim`]).

mod addresses;
mod attributes;
mod claim;
mod config;
mod facts;
mod parse;

pub use addresses::{ADDRESS_RANGES, ADDRESS_SPAN, Addresses};
pub use claim::{ClaimError, RangeLocks};
pub use config::{GpuConfig, GpuError};
pub use parse::{parse_bytes, parse_compute_capability, parse_uuid};
