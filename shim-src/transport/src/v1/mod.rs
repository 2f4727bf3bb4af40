//! Devices of version 1: the guest's half of `vgpu_wire::v1`, made to look like a device of version 2.
//!
//! A session is the same on both versions: messages in a ring, words and replies in a return area
//! ([`crate::session`]). Here ring and return area are this process's own memory, and [`Bridge`] does what a
//! host of version 2 would do with a message, when the doorbell "rings", in the thread that rang: it
//! translates the message into calls of version 1. So nothing above this directory knows which version it
//! met, except that copies go straight from memory.
//!
//! ```text
//!   ring, return area ─► bridge ─► session ─► translate ─► host ─► mailbox ─► window ─► port ─► BAR0, BAR1, pages
//!   (own memory)                   a message as calls      one call, under device_lock
//! ```
//!
//! Version 1 has one call in flight for the whole virtual machine, and its host waits for each launch. So all
//! work has completed when its message has been executed: streams, events, joins and graphs need no calls at
//! all. What no call expresses is refused with `CUDA_ERROR_NOT_SUPPORTED`: virtual memory, clusters,
//! cooperative launches, triangular solvers, products of doubles and integers, more dynamic shared memory
//! than the default.
//!
//! After an illegal access such a host resets its GPU context, and with it what every process of every
//! machine has there (Q17). This process ends its session then; others learn of it when their handles are no
//! longer known.

mod bridge;
mod call;
mod device_lock;
mod facts;
mod host;
mod lock_files;
mod mailbox;
mod owners_file;
mod port;
#[cfg(test)]
mod recorded;
mod returns;
mod session;
mod shared_file;
mod staged;
mod translate;
mod turn_files;
mod window;

pub(crate) use bridge::{Bridge, BridgeError};
pub(crate) use call::Failure;
pub(crate) use lock_files::LockFiles;
pub use turn_files::{mend_turn_file, turn_files};
