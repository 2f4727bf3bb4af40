//! The guest's end of VGPU-STUB: finds the function, maps it, opens a channel, writes messages, waits.
//!
//! Runs inside other people's processes, so: nothing here starts a thread, prints, aborts, changes a
//! signal's disposition or a thread's settings, or blocks a process that wants to exit. What the
//! contract is, `vgpu_wire` says; this crate is one reader of it.
//!
//! ```text
//!  sysfs ─► device ─► attach ─► session ─┬─► ring      messages out
//!             │          │               ├─► replies   answers in
//!         registers    reach             ├─► words     completions in
//!         mapping      reading           ├─► staging   copies through window memory, or back through guest pages
//!                      pages             └─► wait      spins, then sleeps
//! ```
//! `mapping` is the only place that touches shared memory, `registers` and `sim` the only ones that touch BAR0.
//!
//! # In other people's processes
//!
//! * **They fork.** A child finds [`Lost::Forked`] in every call and touches neither memory nor descriptors of its
//!   parent; its exit ends nothing (`fork`).
//! * **They die.** Nothing needs to be said to the host: the kernel drops the lock on the channel, and who attaches next, or
//!   finds no room, takes the channel back (`lock`, `attach`).
//! * **They exit at any moment.** [`Session::close`] waits for no other thread and for the host a fifth of a second at
//!   most; it puts private memory in the window's place, so that threads which still write reach nobody.
//! * **They are killed while the host writes.** Guest pages that a session was given stay what they are until its channel has been
//!   detached (`pages`).
//! * **They close descriptors** that are not theirs. Ours lie high, and each look whether the device is alive, and each register
//!   access, first sees whether the number still names our file; if not, the file is opened and the lock taken again. Until then,
//!   at most half a second, another process that attaches could take the channel for a dead one's: the session is then
//!   [`GoneReason::Channel`], and the other's may end too. That needs a program that closes everything and lives on: those
//!   that do so before they exec lose nothing (`descriptor`).
//! * **They cancel threads.** Calls that may block are raw system calls, which are no cancellation points.
//! * **They handle signals.** Every interrupted call is taken up again.
//!
//! # What is fast
//!
//! [`Session::send`] takes a lock, copies, and publishes: no allocation, no system call while the host is awake, no register
//! access but one look after the device each 0.4 s. [`Session::late_error`], [`Session::word_value`] and [`Session::check`] are a
//! few loads. `cargo run --release -p vgpu-transport --example bench` measures.

mod ask;
mod attach;
mod channel;
mod counters;
mod dead;
mod descriptor;
mod device;
mod folder;
mod fork;
mod inner;
mod lock;
mod lost;
mod mapping;
mod notice;
mod page;
mod pages;
mod progress;
mod reach;
mod reading;
mod registers;
mod replies;
mod ring;
mod session;
mod sim;
mod staging;
mod sysfs;
mod tracer;
mod trouble;
mod v1;
mod wait;
mod window;
mod words;

pub use attach::AttachError;
pub use counters::Counters;
pub use device::{Device, OpenError, Probe, mend_turn_file, turn_files};
pub use fork::wiped;
pub use lost::{GoneReason, LateError, Lost};
pub use notice::{Notice, listen};
pub use progress::Progress;
pub use reading::{Reading, Why};
pub use session::{Answer, Session};
pub use sysfs::{Bar, PciFunction, ScanError, scan, sysfs_root};
pub use tracer::refused as trace_refusal;
pub use vgpu_wire::pci::{AddressError, PciAddress};
pub use window::WindowMemory;
pub use words::Word;
