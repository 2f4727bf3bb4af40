//! Version 1 of VGPU-STUB: the device of existing hosts, and the mediator behind it.
//!
//! ```text
//!  guest ── BAR0, BAR1, guest memory ──► Device ──► Link ┬─ Local ─────────────────────────────► Mediator ─► Executor
//!           (whatever bus: offsets,                      └─ Client ── frames on a socket ── Server ─┘
//!            sizes, GuestMemory)
//! ```
//! [`Device`] is registers, routing and the states of a call; it behaves as the reference device does,
//! oddities included (`Q1` to `Q28` of [`vgpu_wire::v1`]). [`Mediator`] executes calls on the executors of
//! version 2: a call becomes messages of an owner's session, and the mediator waits for them, since version 1
//! is synchronous. It checks what existing hosts trust: lengths, handles, addresses.
//! [`serve_on_bus`] puts devices on the simulated bus, and [`PciFunction`] shows one to a virtual machine.

#![forbid(unsafe_code)]

mod access;
mod bar1;
mod bus;
mod bus_hooks;
mod client;
mod clients;
mod connection_turn;
mod conversation;
mod counts;
mod device;
mod hooks;
mod image;
mod info;
mod link;
mod local;
mod mediator;
mod outbox;
mod payload;
mod pci_function;
mod properties;
mod registers;
mod server;
mod state;
mod stream;

pub use access::Bar;
pub use bus::{BusDeviceConfig, MediatorPlace, OTHER_PROCESS, serve_on_bus};
pub use bus_hooks::{BarAccess, BusTestHooks, Watch};
pub use client::Client;
pub use clients::{CLIENTS_MAX, USER_CLIENTS_MAX};
pub use device::{Device, Inlet};
pub use hooks::TestHooks;
pub use link::{Delivery, Link, LinkError, Submission};
pub use local::Local;
pub use mediator::{Answer, Connection, Mediator, MediatorError, MediatorRules, MediatorSettings, Verdict};
pub use pci_function::PciFunction;
pub use properties::{Pool, Priority, Properties};
pub use server::Server;
pub use stream::Frames;
pub use vgpu_wire::v1::route::Preferences;
