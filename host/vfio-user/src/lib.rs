//! The vfio-user bus: VGPU-STUB as a PCI function of a virtual machine, behind a socket that an unpatched VMM
//! connects to.
//!
//! ```text
//!  guest's kernel        VMM                                          host
//!  ──────────────        ───                                          ────
//!  configuration space ► vfio-user-pci ── socket ──► FunctionSocket ─► config
//!  BAR0, BAR1 ─────────► each access   ── socket ──► FunctionSocket ─► Function (V2) ─► vgpu_device
//!  BAR2, mapped ◄─────── one memory file ──────────► the device's window
//!  its memory ──────────► files, as it is mapped ──► SharedRam
//! ```
//!
//! [`Function`] is what a VMM can be shown, [`V2`] is VGPU-STUB as one, and [`FunctionSocket`] serves it.
//! The guest's memory is [`SharedRam`], which the socket fills in as the VMM maps regions.

#![forbid(unsafe_code)]

mod config;
mod function;
mod ram;
mod socket;
mod v2;

pub use function::{Bar, Decode, Function, IDENTITY, Identity};
pub use ram::SharedRam;
pub use socket::{FunctionSocket, SocketError};
pub use v2::{StubError, V2};
