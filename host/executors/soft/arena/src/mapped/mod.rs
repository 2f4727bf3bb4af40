//! Memory mappings and the accesses to them, and the allocator's own memory: all of the crate's unsafe code.
//!
//! Its soundness rests on these invariants:
//!
//! * **Reserved.** A [`Reservation`] owns its range of address space from `mmap` to `munmap`. Nothing else is
//!   mapped there, and no code outside this module has a pointer into it.
//! * **Pinned.** [`Pages`] is a part of a reservation that is mapped readable and writable as long as the
//!   value lives. No two overlap. Dropping it returns the memory; the part may stay accessible, and then
//!   reads as zeros.
//! * **Covered.** Each extent of a [`MappingTable`] is within pages that the table itself keeps alive. So an
//!   address that was found within an extent can be accessed while the table lives.
//! * **Shared.** The only references into the memory are to atomics. Copies go through `vm-memory`, which
//!   uses volatile accesses, and so do words at even addresses.

mod budget;
mod element;
mod heap;
mod lanes;
mod physical;
mod reservation;
mod table;
mod view;
mod warp;

pub use element::{Cell, Element, Halves, Neighbours};
pub use heap::{give_back, keep_apart};
pub use lanes::LANES;
pub use physical::{Physical, PhysicalPool};
pub(crate) use reservation::{Pages, PagesError, Reservation};
pub(crate) use table::{ArenaMapping, MappingTable};
pub use view::{SharedSlice, View, Window, Windows};
pub use warp::for_active;
