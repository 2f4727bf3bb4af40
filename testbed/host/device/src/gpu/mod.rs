//! A GPU in software: its configuration ([`config`]), and the facts that guests read of it, made from the
//! configuration ([`facts`]) and the table of device attributes ([`attributes`]).

mod attributes;
mod config;
mod facts;
mod parse;

pub use config::{ADDRESS_SPAN, GpuConfig, GpuError};
pub use parse::{parse_bytes, parse_compute_capability, parse_uuid};
