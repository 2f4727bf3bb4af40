//! Machine code for AVX2.
//!
//! ```text
//!  emitter   assembles pieces
//!  piece     runs of steps that are checked first and then done eight lanes at a time
//!  memory, lanes, integer, float, convert, compare      what is assembled for a step
//!  table     the templates of all steps
//!  body      what assembles a step     cache     registers of the processor as a cache of the frame
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
mod piece;
mod table;

use std::collections::{HashMap, HashSet};

use super::effects::flushes;
use super::live;
use crate::jit::code::Assembled;
use crate::machine::{Inst, Slot, Tables};

/// Assembles all steps that have a template. `None`: the program is interpreted.
pub(super) fn assemble(
    steps: &[Inst],
    tables: &Tables,
    constants: &HashMap<Slot, u64>,
    starts: &HashSet<u32>,
) -> Option<Assembled> {
    let flush = flushes(steps.iter().filter_map(table::template));
    let pieces = piece::divide(steps, tables, starts, flush);
    let segments: Vec<_> = pieces.iter().map(|piece| piece.segment(steps, tables)).collect();
    let live = live::find(&segments)?;
    let emitter = emitter::Emitter::new(steps, tables, constants, flush).ok()?;
    emitter.assemble(&pieces, &live).ok()?
}
