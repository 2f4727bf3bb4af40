//! Parts of warps: what each does next, and how two of them become one.

use crate::machine::{Registers, Slot, Warp};

/// What a part does next.
#[derive(Clone, Copy, Debug)]
pub(super) enum State {
    /// It runs its lowest pending block.
    Ready,
    /// It goes on at a step.
    At(u32),
    /// Its lanes wait at a barrier, to go on at a block.
    Waiting { number: usize, step: u32, block: u32, line: u32 },
    /// Its lanes wait for the others that the step `pc` names.
    Parked { pc: u32 },
    /// It has no lanes.
    Done,
}

/// Lanes of a warp that run and wait together.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) warp: Warp,
    pub(super) state: State,
}

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
