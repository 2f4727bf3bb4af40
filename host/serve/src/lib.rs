//! The commands of a host. [`serve`] gives a VM a GPU, by settings from options and a file. It uses
//! [`device`], which serves VGPU-STUB devices on a bus, and [`mediator`], which carries out the calls of
//! version 1 devices in other processes. These two also have the options that tests need. [`check`] finds the
//! causes that keep this host from giving its GPU to a VM, and [`status`] shows the VMs of each GPU, from the
//! directory that devices share, and what devices answer over the socket of `control`; [`end`] ends one of
//! their sessions, and [`replug`] gives a VM its device back. [`libvirt`] starts a device with its domain.
//! [`probe`] asks the driver what no documentation
//! says, [`ranges`] which device addresses it reserves, and [`context_cost`] what a context costs of its
//! memory. [`gpu_list`] prints its GPUs for programs that place VMs. [`pages`] is the manual page of all
//! commands.
//!
//! ```text
//!  serve ──► settings, vm: what QEMU and libvirt are started with
//!    │
//!  device ──► bus: sim:DIR ─────────── vgpu_device::SimBus
//!     │            vfio-user:SOCKET ── machine ── vgpu_vfio_user
//!     ├─► v1: properties, and where calls go
//!  mediator ─► executor: soft or null, and its GPU ─► worker: a process for each session
//!     └─► lifetime: ready, status, stop
//!  serve, machine ─► takeover: what a process that died has left ─► inherited, orphans
//!                       └► keeper: what the next process needs ─► store, and the record of vgpu_vfio_user
//! ```
//!
//! The test bed offers the same commands with [`Knobs`], by which a test makes a device report wrong values
//! or its executor work in an unexpected order. The program sets none.

#![deny(unsafe_code)]

mod ask;
pub mod check;
mod config;
pub mod context_cost;
mod control;
pub mod device;
pub mod end;
mod engine;
mod executor;
mod facts;
mod figures;
mod folder;
pub mod gpu_list;
mod gpu_report;
mod gpus;
mod guest_share;
mod helper;
#[allow(unsafe_code, reason = "a number in a variable becomes a descriptor")]
mod inherited;
mod instances;
mod keeper;
mod kept_settings;
mod knobs;
pub mod libvirt;
mod lifetime;
mod machine;
pub mod mediator;
mod metrics;
mod monitor;
pub mod node;
mod notify;
mod origin;
mod orphans;
pub mod pages;
mod possible;
pub mod probe;
mod programs;
pub mod ranges;
pub mod reload;
pub mod replug;
mod room;
pub mod serve;
mod settings;
mod share;
mod signals;
pub mod status;
mod store;
mod stub;
mod table;
mod takeover;
mod turns;
mod v1;
mod values;
pub mod vm;
pub mod worker;

pub use engine::{Engine, EngineError};
pub use facts::Facts;
pub use inherited::{HANDED_OVER, Inherited, InheritedError, named_numbers};
pub use knobs::Knobs;
pub use values::{parse_limit, parse_sim, parse_size};
