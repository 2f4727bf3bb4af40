//! Which runs are assembled a second time, for warps of which the upper half of the lanes is inactive: those
//! of loops, whose last round mostly has few lanes. Half of the work of each step is left out there.

use std::ops::RangeInclusive;

use super::body::Entry;
use super::run::Run;
use crate::machine::Inst;

/// Steps of lanes that a run must have for it to pay.
const WORTH: usize = 8;

/// The steps of loops.
pub(super) struct Loops {
    ranges: Vec<RangeInclusive<usize>>,
}

impl Loops {
    /// Finds the loops by the branches back.
    pub(super) fn find(runs: &[Run], steps: &[Inst]) -> Self {
        let back = |run: &Run| {
            let last = run.parts.last()?;
            let step = &steps[last.index];
            let (then, otherwise) = (step.imm as u32, (step.imm >> 32) as u32);
            match last.entry {
                Entry::Goto { back: true } => Some(then as usize..=last.index),
                Entry::Branch { back: true, .. } => Some(then.min(otherwise) as usize..=last.index),
                _ => None,
            }
        };
        Self { ranges: runs.iter().filter_map(back).collect() }
    }

    /// Whether a run is of a loop, has enough to do, and its lanes exchange nothing.
    pub(super) fn contains(&self, run: &Run) -> bool {
        let apart = run.parts.iter().all(|part| {
            !matches!(
                part.entry,
                Entry::Butterfly { .. }
                    | Entry::Shuffle { .. }
                    | Entry::Product { .. }
                    | Entry::Quads
                    | Entry::Matrices { .. }
                    | Entry::Transpose
            )
        });
        let of_lanes = |entry: &Entry| matches!(entry, Entry::Lanes(_) | Entry::Dot4(_) | Entry::Fields);
        let steps = run.parts.iter().filter(|part| of_lanes(&part.entry)).count();
        apart && steps >= WORTH && self.ranges.iter().any(|range| range.contains(&run.first))
    }
}
