//! Dataflow analyses of a kernel's registers: liveness, uniformity over the warp, the writes that must
//! preserve the values of inactive lanes, and the slots in which registers are stored.
//!
//! # The model
//!
//! A warp has a mask of pending lanes for each block, those that wait there. At first all lanes wait at block
//! 0. A step takes the lowest block at which lanes wait and runs it for all of them; its terminator makes
//! them wait at its successors, where others may wait already. Lanes that return have exited. Nothing else
//! moves lanes; a barrier stops the whole warp. All statements here hold for this order of steps and for no
//! other.
//!
//! An engine may divide the lanes of a warp into splits, for instance because some wait for others. Each
//! split is then a warp of its own with a copy of all registers, and the statements hold for each alone. Two
//! splits may have different values of a uniform register: they may have come by different paths, or have
//! loaded from one address at different times. So an engine that merges splits must compare the uniform
//! registers that are live, and must not take the values that lanes of different splits exchange from the
//! uniform registers of one.
//!
//! # Which blocks can wait while which run
//!
//! Let X < Y be two blocks at which lanes wait at the same moment. Nothing but X's own step removes lanes
//! from X, and Y has no step before it, so *X will run while lanes wait at Y*. That makes pairs enough: a
//! pair {X, Y} appears when
//!
//! * a branch that may diverge has X and Y as successors, or
//! * the lower block of a pair {Z, Y} runs and X ≠ Y is a successor of Z.
//!
//! The least set of pairs closed under both holds each pair that can occur: whichever step puts lanes at X
//! while lanes wait at Y is a step of a block Z below Y with lanes waiting at Y, or it put them at both at
//! once. So `waiting(B)`, the union of `live_in(P)` over all pairs {B, P} with B < P, holds each register
//! whose value a lane that does not take part in a step of B may read later.
//!
//! # Uniform registers
//!
//! A register is uniform if an engine may keep one value of it for the whole warp. The invariant of each
//! step: *for each lane that has not exited, and each uniform register that is live where it waits, the one
//! value is the lane's own*. It holds at the start, where the values of registers are undefined. A step of B
//! with the lanes M reads, by the invariant, the right value for all of M; so what an instruction computes
//! from uniform sources is the same for all of M, unless the instruction itself depends on the lane
//! (`%tid.x`, a load from local memory, a shuffle, the old value of an atomic). Lanes outside of M wait at
//! some P of a pair {B, P}, so they only care if the register is in `waiting(B)`. Hence a register is not
//! uniform if
//!
//! 1. one of its definitions depends on the lane or has a source that is not uniform, or
//! 2. one of its definitions is in a block B with the register in `waiting(B)`.
//!
//! (Registers with several definitions on the two sides of a branch, and those that a loop redefines while
//! lanes that left it wait with older values, fall under 2.) A branch may diverge unless its predicate is
//! uniform, so 1, 2 and the pairs depend on each other. The analysis starts with all registers uniform and no
//! branch diverging, and applies the rules until a fixed point is reached. If a statement were wrong,
//! consider the first step of an execution that contradicts one: all statements that it rests on held before
//! it, and the rules were applied to them.
//!
//! # Blending
//!
//! A register that is not uniform has a value for each lane. A write in B may overwrite all lanes' values,
//! with anything, unless a lane outside of M reads its own later, that is, unless the register is in
//! `waiting(B)`. [`Analysis::blend`] has the registers with such a write, which an engine must mask. Values
//! that other lanes read without this lane's taking part, by a shuffle from an inactive lane, are undefined
//! in PTX too.

mod access;
mod copies;
mod divergence;
mod facts;
pub(crate) mod live;
mod readers;
mod sets;
mod slots;

use crate::effort::{Effort, Spent};
use crate::ir::Kernel;

pub use access::{reads, specials, writes};
pub use facts::{Analysis, Assume};
pub use readers::Readers;
pub use sets::RegSet;
pub use slots::{SlotGroup, Slots, slots};

/// Analyses a kernel. Its registers and blocks must be in range, as the parser makes them.
///
/// # Errors
/// It takes more than the effort allows: pairs of blocks, and registers that live across them, are up to the
/// square of the text.
pub fn analyse(kernel: &Kernel, assume: Assume, effort: &Effort) -> Result<Analysis, Spent> {
    let live = live::Live::compute(kernel, effort)?;
    divergence::analyse(kernel, assume, live, effort)
}
