//! What lanes must agree on where parts of a warp meet.
//!
//! A register that the warp shares has one value for all lanes *of the order in which the analysis runs blocks*: lanes at the
//! lowest block first. Lanes that wait, at a barrier or for lanes that an instruction names, let others go on out of this order,
//! with registers of their own, and these may come with another value. So parts become one only if the shared
//! registers that are read later are the same in both; else each goes on with its own.

use std::collections::{HashMap, HashSet};

use vgpu_ptx::analysis::{Analysis, reads, writes};
use vgpu_ptx::ir::{Kernel, Op, Reg, Terminator};

use crate::machine::Slot;
use crate::ops::Place;

/// Whether lanes may wait at an instruction.
pub(super) const fn waits(op: &Op) -> bool {
    matches!(
        op,
        Op::Bar { .. }
            | Op::BarArrive { .. }
            | Op::BarRed { .. }
            | Op::BarWarp { .. }
            | Op::Shfl { .. }
            | Op::Vote { .. }
            | Op::Ballot { .. }
            | Op::Match { .. }
            | Op::Redux { .. }
            | Op::Mma { .. }
    )
}

/// By instruction of a block at which lanes may wait: the places of shared registers that are read from there on.
pub(super) fn agreements(
    kernel: &Kernel,
    block: usize,
    analysis: &Analysis,
    places: &[Place],
) -> HashMap<u32, Box<[Slot]>> {
    let mut agreements = HashMap::new();
    let range = kernel.blocks[block].code.clone();
    if !range.clone().any(|index| waits(&kernel.code[index as usize].op)) {
        return agreements;
    }
    let shared = |reg: Reg| match places[reg.0 as usize] {
        Place::Scalar(slot) => Some(slot),
        Place::Vector(_) => None,
    };
    let mut live: HashSet<Slot> = analysis.live_out[block].iter().filter_map(shared).collect();
    if let Terminator::Branch { guard, .. } = kernel.blocks[block].end {
        live.extend(shared(guard.reg));
    }
    for index in range.rev() {
        let op = &kernel.code[index as usize].op;
        writes(op, &mut |reg| {
            if let Some(slot) = shared(reg) {
                live.remove(&slot);
            }
        });
        let barrier = matches!(op, Op::Bar { .. } | Op::BarArrive { .. } | Op::BarRed { .. });
        let mut note = |live: &HashSet<Slot>| {
            let mut slots: Box<[Slot]> = live.iter().copied().collect();
            slots.sort_unstable();
            agreements.insert(index, slots);
        };
        // A barrier is behind the lanes that meet there; other instructions are run again by all of them.
        if barrier {
            note(&live);
        }
        reads(op, &mut |reg| live.extend(shared(reg)));
        if !barrier && waits(op) {
            note(&live);
        }
    }
    agreements
}
