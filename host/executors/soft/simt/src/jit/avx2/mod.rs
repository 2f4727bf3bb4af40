//! The translator for AVX2: superblocks whose memory accesses are checked first, and which then process eight
//! lanes at a time.
//!
//! ```text
//!  emitter      assembles superblocks
//!  superblock   divides a program into superblocks
//!  table        the templates         memory, lanes, integer, float, convert, compare   their code
//!  body         the types of templates         cache   vector registers as a cache of the frame
//! ```

mod body;
mod cache;
mod compare;
mod convert;
mod emitter;
mod float;
mod integer;
mod lanes;
mod memory;
mod superblock;
mod table;

use std::collections::{HashMap, HashSet};

use super::effects::flushes;
use super::live;
use crate::jit::code::Assembled;
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
    let superblocks = superblock::divide(steps, tables, starts, flush);
    let segments: Vec<_> = superblocks.iter().map(|superblock| superblock.segment(steps, tables)).collect();
    let live = live::find(&segments)?;
    let emitter = emitter::Emitter::new(steps, tables, constants, (blocks, flush)).ok()?;
    emitter.assemble(&superblocks, &live).ok()?
}

/// Returns whether there is a template for an opcode.
pub(super) fn translates(opcode: Opcode) -> bool {
    table::templates().has(opcode)
}
