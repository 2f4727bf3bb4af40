//! Merges two splits of a warp into one.

use crate::machine::{LaneRegisters, Slot, SplitState, WarpSplit};

/// Moves the running or waiting lanes of one split into another of the same warp, if both have the same
/// values in the shared registers of `agreement`. Otherwise both splits stay separate, with their own values.
pub(super) fn merge_splits(
    splits: &mut [WarpSplit],
    into: usize,
    from: usize,
    registers: &LaneRegisters,
    agreement: &[Slot],
) {
    let [target, source] = splits.get_disjoint_mut([into, from]).expect("two splits");
    let (ours, theirs) = (&target.warp.frame, &source.warp.frame);
    if agreement.iter().any(|&slot| ours.get::<u64>(slot) != theirs.get::<u64>(slot)) {
        return;
    }
    // The comparison takes as long as some instructions, and nothing else counts it.
    target.warp.fuel -= agreement.len() as i64;
    registers.copy_lanes(&source.warp.frame, &mut target.warp.frame, source.warp.mask);
    target.warp.mask |= source.warp.mask;
    source.warp.mask = 0;
    source.state = SplitState::Done;
}
