//! A GPU in software: its configuration ([`config`]), and the facts that guests read of it, made from the
//! configuration ([`facts`]) and the table of device attributes ([`attributes`]). The device addresses that
//! it has ([`addresses`]) are no other device's ([`claim`]).

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
