//! What a host runs, as commands: [`device`] serves VGPU-STUB devices on a bus, and [`mediator`] carries out
//! the calls of version 1's devices that live in other processes. The program `vgpu-device` has these two
//! commands, and [`worker`], which it starts itself.
//!
//! ```text
//!  device ──► bus: sim:DIR ─────────── vgpu_device::SimBus
//!     │            vfio-user:SOCKET ── machine ── vgpu_vfio_user
//!     ├─► v1: properties, and where calls go
//!  mediator ─► executor: soft or null, and its GPU ─► worker: a process for each session
//!     └─► lifetime: ready, status, stop
//! ```
//!
//! The test bed offers the same commands with [`Knobs`], by which a test makes a device lie or its executor
//! work in an unexpected order. The program sets none.

#![forbid(unsafe_code)]

mod bus;
pub mod device;
mod executor;
mod facts;
mod knobs;
mod lifetime;
mod machine;
pub mod mediator;
mod v1;
pub mod worker;

pub use bus::parse_sim;
pub use executor::parse_size;
pub use facts::Facts;
pub use knobs::Knobs;
