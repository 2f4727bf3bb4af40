//! Barriers of a block: the threads that have arrived, and the reduction of their predicates.

use vgpu_ptx::ir::Reduce;

use crate::machine::{Baseline, LANES, SplitState, ValueLoc, Warp, WarpSplit};
use crate::ops::{put_active, put_predicate};

/// Counts of the predicates that lanes have passed to `bar.red`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Votes {
    /// Number of lanes whose predicate is true.
    holding: u32,
    /// Number of lanes that have arrived with a predicate.
    total: u32,
}

/// One of the 16 barriers of a block.
#[derive(Clone, Debug, Default)]
pub(super) struct Barrier {
    /// Mask of the lanes that have arrived, by warp.
    arrived: Vec<u32>,
    /// Number of threads that must arrive. `None` stands for all threads that have not returned.
    threads: Option<u32>,
    votes: Votes,
}

impl Barrier {
    /// Resizes the barrier for blocks of `warps` warps, with no thread arrived.
    pub(super) fn resize(&mut self, warps: usize) {
        self.arrived.clear();
        self.arrived.resize(warps, 0);
    }

    /// Records that the active lanes of a warp have arrived at the barrier, which waits for `threads`
    /// threads, or for all if `None`.
    pub(super) fn arrive(&mut self, warp: &Warp, threads: Option<u32>) {
        self.threads = threads;
        self.arrived[warp.index as usize] |= warp.mask;
    }

    /// Adds the predicates of `lanes` to the counts.
    pub(super) const fn count(&mut self, predicate: u32, lanes: u32) {
        self.votes.holding += (predicate & lanes).count_ones();
        self.votes.total += lanes.count_ones();
    }

    /// Returns the counts of predicates so far.
    pub(super) const fn votes(&self) -> Votes {
        self.votes
    }

    /// Returns whether all expected threads have arrived. `splits` are those of the block, and `shape` is its
    /// number of threads by axis.
    #[inline]
    pub(super) fn is_complete(&self, splits: &[WarpSplit], shape: [u32; 3]) -> bool {
        if let Some(threads) = self.threads {
            return self.has(threads, shape);
        }
        // Threads that have returned are not waited for. The last warps are tested first, as they mostly
        // arrive last.
        for WarpSplit { warp, state, .. } in splits.iter().rev() {
            if !matches!(state, SplitState::Done) && warp.lanes() & !self.arrived[warp.index as usize] != 0 {
                return false;
            }
        }
        true
    }

    /// Returns whether at least `threads` threads have arrived. A warp counts as full if all of its lanes
    /// have arrived, even if the block ends within the warp.
    fn has(&self, threads: u32, [x, y, z]: [u32; 3]) -> bool {
        let arrived = self.arrived.iter().enumerate().map(|(warp, &lanes)| {
            // A partial warp counts as full once all of its lanes have arrived.
            let started = (x * y * z - warp as u32 * LANES as u32).min(LANES as u32);
            if lanes.count_ones() == started { LANES as u32 } else { lanes.count_ones() }
        });
        arrived.sum::<u32>() >= threads
    }

    /// Resets the barrier for its next use.
    pub(super) fn clear(&mut self) {
        self.arrived.fill(0);
        self.votes = Votes::default();
    }
}

/// Returns the active lanes that have the same operands of a barrier as the lowest one.
pub(super) fn alike(warp: &Warp, operands: impl Iterator<Item = ValueLoc>) -> u32 {
    operands.fold(warp.mask, |alike, place| match place {
        ValueLoc::Scalar(_) => alike,
        ValueLoc::Vector(slot) => {
            let (values, value) = (warp.frame.vector::<u32>(slot), operand(warp, place));
            (0..LANES).filter(|&lane| values[lane] != value).fold(alike, |alike, lane| alike & !(1 << lane))
        }
    })
}

/// Reads an operand of a barrier. If each lane has its own value, this is that of the lowest active lane.
pub(super) fn operand(warp: &Warp, place: ValueLoc) -> u32 {
    match place {
        ValueLoc::Scalar(slot) => warp.frame.get(slot),
        ValueLoc::Vector(slot) => warp.frame.vector::<u32>(slot)[warp.mask.trailing_zeros() as usize % LANES],
    }
}

/// Writes the result of `bar.red` to the waiting lanes: a predicate, or a count of 32 bits for `.popc`.
pub(super) fn reduce(warp: &mut Warp, op: Reduce, dst: ValueLoc, votes: Votes) {
    let Votes { holding, total } = votes;
    let holds = match op {
        Reduce::And => holding == total,
        Reduce::Or => holding != 0,
        Reduce::Popc => {
            match dst {
                ValueLoc::Scalar(slot) => warp.frame.set(slot, holding),
                ValueLoc::Vector(slot) => put_active::<Baseline, _>(warp, slot, &[holding; LANES]),
            }
            return;
        }
    };
    let bits = u32::from(holds).wrapping_neg();
    match dst {
        ValueLoc::Scalar(slot) => warp.frame.set(slot, bits),
        ValueLoc::Vector(slot) => put_predicate(warp, slot, bits),
    }
}
