//! Loads and stores: the addresses of lanes, the memory that they select, and the conversion between elements
//! and register values.

mod address;
mod copy;
mod element;
mod generic;
mod global;
mod insts;
mod local;
mod near;
mod shared;
mod space;

pub(crate) use address::{Near, NearAccess, next};
pub(crate) use copy::CopyAsync;
pub(crate) use element::{Extend, FromU8, FromU16, Same32, Same64, Truncate};
pub(crate) use generic::{Generic, WindowLanes, single_lanes};
pub(crate) use global::Global;
pub(crate) use insts::{Load, LoadPair, LoadScalar, LoadTwo, Store};
pub(crate) use local::Local;
pub(crate) use shared::Shared;
pub(crate) use space::Space;
