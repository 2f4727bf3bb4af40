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
//!
//! ```text
//!  socket      listens, accepts one VMM at a time, is handed over to another process
//!   └ connection   answers requests ─► regions ─► config, function
//!      │    ├ saved    a connection between two requests
//!      │    └ recorder ─► record    what the next process finds after a crash
//!      ├ stream    looks at a request where it lies, takes it after its reply, stops between two
//!      └ frame, limits    decode what a VMM sent
//! ```

#![forbid(unsafe_code)]

mod config;
mod connection;
pub mod frame;
mod function;
mod limits;
mod ram;
pub mod record;
mod recorder;
mod regions;
mod saved;
mod socket;
mod stream;
mod v2;

pub use config::BYTES as CONFIG_BYTES;
pub use function::{Bar, Decode, Function, IDENTITY, Identity};
pub use limits::Limits;
pub use ram::{MapError, Region, SharedRam};
pub use recorder::{Answering, Recorder};
pub use saved::{RestoreError, SavedConnection, UnsentReply};
pub use socket::{FunctionSocket, SocketError, VM_EVENTS};
pub use stream::{Stop, end as end_connection};
pub use v2::{StubError, V2};
