//! What the devices of one host share of a GPU: who has been promised how much of its memory, and the words
//! by which their time is arbitrated.
//!
//! A directory of the host has one file for each GPU, named by its UUID ([`Gpus`]). The file has a header
//! page and a page for each of [`SLOTS`] slots ([`GpuShare`]). Every device process and the node process map
//! it. No worker does: a compromised worker could write to the slots of other VMs.
//!
//! A device takes a slot for its VM ([`GpuShare::claim`]) under a lock that admits one claim at a time, so
//! that two starts cannot both be promised the same memory. Whether a slot is taken is told by locks alone,
//! which the kernel drops when a process ends, however it ends. Each slot has an empty file beside that of
//! the GPU. The device holds an open-file-description lock on its first byte, and each worker one of its own
//! on the rest, by a descriptor that can only be read. The slot is free when the last of them is gone, so
//! memory that a worker still has is not promised to another VM. If only workers are left, a claim waits for
//! them.
//!
//! A worker that drops its lock gives up only that. Where workers run as a user of their own, they can reach
//! the lock of no other slot, nor the GPU's file. Workers that run as the device's user can: they are trusted
//! with what the VMs of this GPU have been promised.
//!
//! ```text
//!  GPU-UUID       header   magic, version, UUID, memory          │ words of the node process
//!                 slot 0   record: name, process, promise, use   │ words of the arbiter
//!                 ...
//!                 slot 63
//!  GPU-UUID.00    lock of slot 0, empty: byte 0 is the device's, the rest is its workers'
//!  GPU-UUID.cost  lock of whoever measures what a context costs, empty
//!  GPU-UUID.node  lock of the node process, empty
//! ```
//!
//! All words are atomics in shared memory. Whoever reads words of another process checks them: a name is text
//! that ends, and a promise is at most what the GPU has.

#![forbid(unsafe_code)]

pub mod arbiter;
mod claim;
mod directory;
mod error;
mod gpu;
mod layout;
mod lock;
pub mod scheduler;
mod slot;
#[cfg(test)]
mod tests;
mod uuid;

pub use claim::{Claim, GpuMemory};
pub use directory::Gpus;
pub use error::{Promise, ShareError};
pub use gpu::{GpuShare, Measurement};
pub use layout::{Figure, NAME_BYTES, SLOTS};
pub use slot::{Slot, SlotView, largest_reserve, promised_bytes, sum_of_weights};
pub use uuid::GpuUuid;
