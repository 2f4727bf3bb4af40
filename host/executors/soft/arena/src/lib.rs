//! Device memory of one session of the soft executor.
//!
//! An [`Arena`] is a range of this process's address space that is reserved without memory; device addresses
//! are offsets in it plus a base. [`Arena::map`] maps zeroed memory at an address, [`Arena::map_shared`] a
//! part of a [`Physical`] memory, and [`Arena::unmap`] removes mappings. A table holds the mappings, exact to
//! the byte. A [`View`] is a snapshot of that table, and the only way to access the memory: for a warp at a
//! time ([`View::load`], [`View::store`], [`View::rmw`]), for a value that a warp shares
//! ([`View::load_uniform`]), and for copies ([`View::readable`], [`View::writable`]).
//!
//! **No address does harm.** Every access is compared with the table before memory is touched. A view keeps
//! the memory of its table alive: memory that is unmapped while a view exists is returned to the system when
//! the last such view is dropped, and its addresses cannot be mapped before.
//!
//! **Threads.** Several threads may access the memory at once. Elements are read and written by relaxed
//! atomics of their own width, and read-modify-writes are sequentially consistent. Racing accesses of
//! different widths have the result that the hardware gives them; only a kernel with a data race makes them.
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
mod page;

pub use arena::{AccessRights, Arena, ArenaError};
pub use fault::{Fault, FaultKind, Illegal};
pub use mapped::{
    Cell, Element, Halves, LANES, Neighbours, Physical, PhysicalPool, SharedSlice, View, Window, Windows,
    for_active, give_back, keep_apart,
};
pub use page::{LARGE_PAGE, OPENED_TOGETHER, PAGE, whole_pages};
