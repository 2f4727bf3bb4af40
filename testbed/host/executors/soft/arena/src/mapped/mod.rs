//! Memory mappings and the accesses to them, and the allocator's own memory: all of the crate's unsafe code.
//!
//! The invariants that it rests on:
//!
//! * **Reserved.** A [`Reservation`] owns its range of address space from `mmap` to `munmap`. Nobody else
//!   maps anything there, and nothing outside of this module has a pointer into it.
//! * **Pinned.** [`Pages`] is a part of a reservation that is mapped readable and writable for as long as the
//!   value lives. Two never overlap. Dropping it gives the memory back; the part may stay accessible, and
//!   then reads zeros.
//! * **Covered.** Each extent of a [`Table`] lies within pages that the table itself holds. So an address
//!   that was found within an extent can be accessed while the table lives.
//! * **Shared.** No reference into the memory is ever made but to atomics, and none to elements of other
//!   types. Copies go through `vm-memory`, which uses volatile accesses, as words at even addresses do.

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
pub(crate) use table::{Mapping, Table};
pub use view::{SharedSlice, View, Window};
pub use warp::for_active;
