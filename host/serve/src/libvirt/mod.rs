//! Devices of libvirt's domains. [`attach`] adds what a domain needs to its XML; from then on the [`hook`]
//! starts the domain's instance of the unit before the domain, and stops it after it.
//!
//! ```text
//!  attach   by virsh, once            hook   called by libvirt, which it must not call
//!   └─ edit   changes of the text      └─ instance   the unit, its settings, whose it is
//!       └─── domain   what the XML says ───┘
//!             └─ request   the element in the domain's metadata
//! ```

pub mod attach;
mod domain;
mod edit;
pub mod hook;
mod instance;
mod request;
