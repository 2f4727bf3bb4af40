//! Machine code for AVX-512, a whole warp at a time.
//!
//! ```text
//!  emitter   assembles runs         run       steps in a row, and what of their accesses is checked together
//!  memory, load, store, matrices, product, quads, lanes, scalar, integer, float, convert, compare
//!            what is assembled for a step
//!  table     the templates of all steps
//!  loops     what is assembled for half a warp, too
//!  turns     the warps of a block one after another
//!  body      what assembles a step     cache     registers of the processor as a cache of the frame
//!  kept      what they hold besides    constants constants as operands     departure where runs are left
//! ```

mod body;
mod cache;
mod compare;
mod constants;
mod convert;
mod departure;
mod emitter;
mod float;
mod integer;
mod kept;
mod lanes;
mod load;
mod loops;
mod matrices;
mod memory;
mod product;
mod quads;
mod registers;
mod run;
mod scalar;
mod scheduler;
mod store;
mod table;
mod value;

use std::collections::{HashMap, HashSet};

use super::code::Assembled;
use super::effects::flushes;
use super::live;
use crate::machine::{Inst, Slot, Tables};

/// Assembles all steps that have a template. `None`: the program is interpreted.
pub(super) fn assemble(
    steps: &[Inst],
    tables: &Tables,
    constants: &HashMap<Slot, u64>,
    starts: &HashSet<u32>,
) -> Option<Assembled> {
    let flush = flushes(steps.iter().filter_map(table::template));
    let runs = run::Divider { steps, tables, constants, flush }.divide(starts);
    let segments: Vec<_> = runs.iter().map(|run| run.segment(steps, tables)).collect();
    let live = live::find(&segments)?;
    let emitter = emitter::Emitter::new(steps, tables, constants, flush).ok()?;
    emitter.assemble(&runs, &live).ok()?
}
