//! Presents a device of version 1 (`vgpu_wire::v1`) to the transport as a device of version 2.
//!
//! A session is the same on both versions: messages in a ring, words and replies in a return area
//! ([`vgpu_transport::Session`]). Here ring and return area are memory of this process, and the bridge acts
//! as the host of version 2: it translates each message into calls of version 1, in the thread that rings the
//! doorbell. So the code above the transport does not depend on the version. Copies of pageable memory do not
//! pass through the ring.
//!
//! ```text
//!   ring, return area ─► bridge ─► bridged_session ─► translate ─► host_session ─► mailbox
//!   (own memory)                   a message as calls              one call, under device_lock
//!
//!   mailbox ─► window ─► port ─► BAR0, BAR1, pages
//! ```
//!
//! Version 1 has one call in flight for the whole virtual machine, and its host waits for each launch. So
//! when a message has been executed, its work has completed: streams, events, joins and graphs need no calls.
//! Messages that no call expresses are refused with `CUDA_ERROR_NOT_SUPPORTED`: virtual memory, clusters,
//! cooperative launches, triangular solvers, products of doubles and integers, and more dynamic shared memory
//! than the default.
//!
//! After an illegal access such a host resets its GPU context, which destroys the objects of all processes of
//! all machines (Q17). The session of this process then ends. Other processes find that their handles are no
//! longer valid.

mod bridge;
mod bridged_session;
mod call;
mod contiguous_pages;
mod data_bar;
mod device_lock;
mod facts;
mod host_session;
mod lock_files;
mod mailbox;
mod owners_file;
mod page_files;
mod port;
#[cfg(test)]
mod recorded_calls;
mod return_area;
mod shared_file;
mod staged_registers;
mod status;
mod translate;
mod window;

pub use bridge::open;
pub use lock_files::{lock_files, share_lock_file};
