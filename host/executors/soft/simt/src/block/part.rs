//! How two parts of a warp become one.

use crate::machine::{Part, Registers, Slot, State};

/// Moves the running or waiting lanes of a part into another of the same warp, if both have the same values
/// in the shared registers of `agreement`. Otherwise the parts stay apart, and each goes on with its own
/// values.
pub(super) fn merge(parts: &mut [Part], into: usize, from: usize, registers: &Registers, agreement: &[Slot]) {
    let [target, source] = parts.get_disjoint_mut([into, from]).expect("two parts");
    let (ours, theirs) = (&target.warp.frame, &source.warp.frame);
    if agreement.iter().any(|&slot| ours.get::<u64>(slot) != theirs.get::<u64>(slot)) {
        return;
    }
    // The comparison takes as long as some instructions, and nothing else counts it.
    target.warp.fuel -= agreement.len() as i64;
    registers.copy_lanes(&source.warp.frame, &mut target.warp.frame, source.warp.mask);
    target.warp.mask |= source.warp.mask;
    source.warp.mask = 0;
    source.state = State::Done;
}
