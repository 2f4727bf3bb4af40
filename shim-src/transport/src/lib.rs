//! The guest's end of VGPU-STUB: finds a function, maps it, attaches to a channel, writes messages, and
//! waits.
//!
//! This crate runs inside other programs' processes. So nothing here starts a thread, prints, aborts, changes
//! a signal's disposition or a thread's settings, or blocks a process that exits. The contract is
//! [`vgpu_wire`].
//!
//! # Layers
//!
//! A file uses those below it, and never one above.
//!
//! ```text
//!  session                    what libcuda sees; attaches with its first message
//!  attach  detach             a channel is taken, and given up
//!  copies                     uploads and downloads of pageable memory
//!  session_core               the state of an attached session, its parts side by side
//!  staging  guest_pages  window_alloc  reclaim  fences  late_errors
//!  messenger                  messages and calls
//!  explanation                why work failed whose error comes late
//!  replies                    a call waits for its answer
//!  submission                 a message goes into the ring, is published, and the doorbell is rung
//!  wait                       spins, then sleeps
//!  link                       registers, channel, lock; whether the session still stands
//!  return_path                where the host writes, chosen by measuring
//!  device                     a function that is opened: its identity, facts, mappings
//!  bar_mappings  identity  areas
//!  bridge                     the seam for devices of another version
//!  sim  registers  sysfs  lock  pages  ring  channel  pace  counters  tracer  sleep  errors
//!  addresses                  the device addresses that this process has reserved
//!  mapping  fork
//! ```
//! `mapping`, with `stream`, is the only file that touches shared memory. `registers` and `sim` are the only
//! ones that touch BAR0.
//!
//! # In other programs' processes
//!
//! * **They fork.** A child finds [`SessionError::Forked`] in every call and touches neither memory nor
//!   descriptors of its parent; its exit ends nothing (`fork`).
//! * **They die.** No process has to tell the host: the kernel drops the lock on the channel, and the next
//!   process that attaches, finds no room or waits for a second ends the session (`lock`, `dead_processes`),
//!   as does `vgpu-run reap` (`reap`).
//! * **They exit at any moment.** [`Session::close`] waits for no other thread, and for the host at most a
//!   fifth of a second. It replaces the window by private memory, so that threads which still write affect no
//!   other process (`detach`).
//! * **They are killed while the host writes.** Guest pages that a session was given are not reused until its
//!   channel has been detached (`pages`).
//! * **They close descriptors** that are not theirs. Those of a session have high numbers, and each
//!   examination of the device, and each register access, first checks that the number still names its file;
//!   if not, the file is opened and the lock taken again. Until then, at most half a second while the session
//!   is used, the owner's description in the channel's area keeps other processes from ending the session
//!   (`descriptor`, `owner`). Behind a bridge, and where `/proc` does not show the owner, the channel can be
//!   lost: the session is then [`GoneReason::Channel`].
//! * **They cancel threads.** Calls that may block are raw system calls, which are no cancellation points.
//! * **They handle signals.** Every interrupted call is repeated.
//!
//! # Costs
//!
//! [`Session::send`] takes a lock, copies, and publishes: it makes no allocation, no system call while the
//! host is awake, and no register access but one examination of the device every 0.4 s.
//! [`Session::late_error`], [`Session::word_value`] and [`Session::check`] are a few loads. `cargo run
//! --release -p vgpu-testbed -- bench transport` measures them.

mod addresses;
mod areas;
mod attach;
mod attach_error;
mod bar_mappings;
pub mod bridge;
mod channel;
mod copies;
mod counters;
mod dead_processes;
mod descriptor;
mod detach;
mod device;
mod explanation;
mod fences;
mod folder;
mod fork;
mod guest_pages;
mod holders;
mod identity;
mod late_errors;
mod link;
mod lock;
mod log_hook;
mod mapping;
mod messenger;
mod mutex;
mod open_error;
mod outgoing;
mod owner;
mod pace;
mod page;
mod pages;
pub mod parts;
mod poll_schedule;
mod progress;
mod reap;
mod reclaim;
mod registers;
mod replies;
mod reply_slots;
mod return_path;
mod ring;
mod session;
mod session_core;
mod session_error;
mod sim;
mod sim_connection;
mod sleep;
mod staging;
mod stream;
mod submission;
mod sysfs;
mod tracer;
mod usage;
mod wait;
mod window_alloc;
mod window_memory;
mod word;

pub use vgpu_wire::Counters;
pub use vgpu_wire::pci::{AddressError, PciAddress};

pub use addresses::{AddressRefusal, Reservation};
pub use attach_error::AttachError;
pub use device::Device;
pub use explanation::Explanation;
pub use fork::wiped;
pub use holders::{Holder, holders};
pub use identity::Probe;
pub use log_hook::{Notice, listen};
pub use open_error::OpenError;
pub use progress::Progress;
pub use reap::Reaped;
pub use replies::Answer;
pub use return_path::{ReturnPath, Why};
pub use session::Session;
pub use session_error::{GoneReason, LateError, SessionError};
pub use sysfs::{Bar, PciFunction, ScanError, scan, sysfs_root};
pub use tracer::refused as trace_refusal;
pub use usage::{DeviceUsage, ReportedUsage, SessionUsage};
pub use window_memory::WindowMemory;
pub use word::Word;
