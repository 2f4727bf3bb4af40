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

use super::effects::flushing;
use super::live;
use super::template::Flush;
use crate::jit::code::Assembled;
use crate::machine::{Slot, Step, Tables};

/// Assembles all steps that have a template. `None`: the program is interpreted.
pub(super) fn assemble(
    steps: &[Step],
    tables: &Tables,
    constants: &HashMap<Slot, u64>,
    starts: &HashSet<u32>,
) -> Option<Assembled> {
    let count = |which: Flush| {
        let wants = |step: &&Step| table::template(step).is_some_and(|entry| flushing(entry) == which);
        steps.iter().filter(wants).count()
    };
    let flush = count(Flush::Always) > count(Flush::Never);
    let pieces = piece::divide(steps, tables, starts, flush);
    let segments: Vec<_> = pieces.iter().map(|piece| piece.segment(steps, tables)).collect();
    let live = live::find(&segments)?;
    let emitter = emitter::Emitter::new(steps, tables, constants, flush).ok()?;
    emitter.assemble(&pieces, &live).ok()?
}
