//! Finds superblocks that are assembled a second time for warps whose upper half is inactive. These are the
//! superblocks of loops, whose last iteration often has few lanes: the second version does half of the work.

use std::ops::RangeInclusive;

use super::body::Action;
use super::superblock::Superblock;
use crate::machine::Inst;

/// Minimum number of vector instructions for which a second version is made.
const WORTH: usize = 8;

/// Ranges of the instructions that belong to loops.
pub(super) struct Loops {
    ranges: Vec<RangeInclusive<usize>>,
}

impl Loops {
    /// Finds the loops by their backward branches.
    pub(super) fn find(superblocks: &[Superblock], steps: &[Inst]) -> Self {
        let back = |superblock: &Superblock| {
            let last = superblock.parts.last()?;
            let step = &steps[last.index];
            let (then, otherwise) = (step.imm as u32, (step.imm >> 32) as u32);
            match last.entry {
                Action::Goto { back: true } => Some(then as usize..=last.index),
                Action::Branch { back: true, .. } => Some(then.min(otherwise) as usize..=last.index),
                _ => None,
            }
        };
        Self { ranges: superblocks.iter().filter_map(back).collect() }
    }

    /// Returns whether a superblock belongs to a loop, is large enough for a second version, and exchanges no
    /// values between lanes.
    pub(super) fn contains(&self, superblock: &Superblock) -> bool {
        let apart = superblock.parts.iter().all(|part| {
            !matches!(
                part.entry,
                Action::Butterfly { .. }
                    | Action::Shuffle { .. }
                    | Action::Product { .. }
                    | Action::Quads
                    | Action::Matrices { .. }
                    | Action::Transpose
            )
        });
        let of_lanes = |entry: &Action| matches!(entry, Action::Lanes(_) | Action::Dot4(_) | Action::Fields);
        let steps = superblock.parts.iter().filter(|part| of_lanes(&part.entry)).count();
        apart && steps >= WORTH && self.ranges.iter().any(|range| range.contains(&superblock.first))
    }
}
