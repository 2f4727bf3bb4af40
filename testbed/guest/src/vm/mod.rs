//! Virtual machines: what they boot ([`initramfs`], [`modules`], [`libraries`]), the QEMU that runs them
//! ([`qemu`]), directories of the host in them ([`share`]), and one that runs ([`machine`]).

pub mod initramfs;
pub mod libraries;
pub mod machine;
pub mod modules;
pub mod qemu;
pub mod share;
