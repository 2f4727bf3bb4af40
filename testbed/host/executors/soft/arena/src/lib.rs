//! Device memory of one session of the soft executor.
//!
//! An [`Arena`] is a range of this process's address space that was reserved without memory; device addresses are
//! offsets in it plus a base. [`Arena::map`] puts zeroed memory at an address, [`Arena::map_shared`] a piece of a
//! [`Physical`] memory, [`Arena::unmap`] takes it away. What is mapped is kept in a table, exact to the
//! byte. A [`View`] is a snapshot of that table, and the only way to the memory: for a warp at a time
//! ([`View::load`], [`View::store`], [`View::rmw`]), for a value that a warp shares ([`View::load_uniform`]), and for
//! copies ([`View::readable`], [`View::writable`]).
//!
//! **No address does harm.** Every access is compared with the table before memory is touched. A view keeps the memory that its
//! table names: what is unmapped while a view lives goes back to the system when the last such view is dropped, and
//! its addresses cannot be mapped before.
//!
//! **Threads.** The memory may be accessed by several threads at once, in any way. Elements are read and written by
//! relaxed atomics of their own width, read-modify-writes are sequentially consistent. Accesses of different
//! widths that race are what the hardware makes of them; only a kernel with a data race has them.
//!
//! ```
//! # use vgpu_arena::{Arena, Window};
//! let arena = Arena::new(0x7000_0000_0000, 1 << 30)?;
//! arena.map(0x7000_0000_0000, 4096)?;
//! let view = arena.view();
//! let addresses = std::array::from_fn(|lane| 0x7000_0000_0000 + 4 * lane as u64);
//! let mut window = Window::default();
//! view.store::<u32>(&mut window, &addresses, u32::MAX, &[7; 32])?;
//! assert_eq!(view.load_uniform::<u32>(&mut window, 0x7000_0000_0010)?, 7);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![deny(unsafe_code)]

mod arena;
mod fault;
#[allow(unsafe_code, reason = "the one module that has it; it says what it rests on")]
#[allow(clippy::inline_always, reason = "inner loops, to be compiled with their callers' instruction set")]
mod mapped;

pub use arena::{Access, Arena, ArenaError};
pub use fault::{Fault, FaultKind, Illegal};
pub use mapped::{
    Cell, Element, Halves, Neighbours, Physical, PhysicalPool, View, Window, for_active, give_back,
    keep_apart,
};

/// Memory that others may write at any moment: copied from and to, never referred to.
pub type SharedSlice<'a> = vm_memory::VolatileSlice<'a, ()>;

/// Lanes of a warp.
pub const LANES: usize = 32;
/// What addresses and lengths of mappings are multiples of.
pub const PAGE: u64 = 4096;
/// A large page of the host. Mappings of this size and more get such pages where the system has them, and should begin at a multiple of
/// it, apart from smaller ones.
pub const LARGE_PAGE: u64 = 2 << 20;
/// Bytes of memory that [`Arena::map`] takes for `bytes`; `None`: more than there can be.
#[must_use]
pub const fn whole_pages(bytes: u64) -> Option<u64> {
    bytes.checked_next_multiple_of(if bytes >= LARGE_PAGE { LARGE_PAGE } else { PAGE })
}

/// How much of an arena is made accessible at a time. What lies in one such piece, from the arena's base, has the same kind of pages.
pub const OPENED_TOGETHER: u64 = 64 << 20;
