//! The translator for AVX-512: superblocks that process a whole warp, instruction by instruction.
//!
//! ```text
//!  emitter      assembles superblocks
//!  superblock   divides a program into superblocks, and coalesces their checks
//!  loops        finds superblocks that get a second version for half a warp
//!  scheduler    runs the warps of a block one after another
//!  table        the templates         memory, load, store, matrices, product, quads, lanes, scalar,
//!                                     integer, float, convert, compare   their code
//!  body         the types of templates         cache   vector registers as a cache of the frame
//!  value, reuse what the registers hold        constants   constants as operands
//!  exit_site    side exits
//! ```

mod body;
mod cache;
mod compare;
mod constants;
mod convert;
mod emitter;
mod exit_site;
mod float;
mod integer;
mod lanes;
mod load;
mod loops;
mod matrices;
mod memory;
mod product;
mod quads;
mod registers;
mod reuse;
mod scalar;
mod scheduler;
mod store;
mod superblock;
mod table;
mod value;

use std::collections::{HashMap, HashSet};

use super::code::Assembled;
use super::effects::flushes;
use super::live;
use crate::machine::{Inst, Opcode, Slot, Tables};

/// Assembles all instructions that have a template. Returns `None` if the program has to be interpreted.
pub(super) fn assemble(
    steps: &[Inst],
    tables: &Tables,
    constants: &HashMap<Slot, u64>,
    starts: &HashSet<u32>,
    blocks: usize,
) -> Option<Assembled> {
    let flush = flushes(steps.iter().filter_map(|step| table::templates().get(step)));
    let superblocks = superblock::Divider { steps, tables, constants, flush }.divide(starts);
    let segments: Vec<_> = superblocks.iter().map(|superblock| superblock.segment(steps, tables)).collect();
    let live = live::find(&segments)?;
    let emitter = emitter::Emitter::new(steps, tables, constants, (blocks, flush)).ok()?;
    emitter.assemble(&superblocks, &live).ok()?
}

/// Returns whether there is a template for an opcode.
pub(super) fn translates(opcode: Opcode) -> bool {
    table::templates().has(opcode)
}
