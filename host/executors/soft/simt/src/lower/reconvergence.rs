//! The shared registers that lanes must agree on where splits of a warp reconverge.
//!
//! A register that the warp shares has one value for all lanes *in the order in which the analysis runs
//! blocks*: lanes at the lowest block first. Lanes that wait, at a barrier or for other lanes, let others run
//! out of this order with registers of their own, and those may arrive with another value. So splits merge
//! only if the shared registers that are read later are the same in both. Otherwise each continues with its
//! own, and executes instructions that need all lanes with copies of the other lanes. What lanes exchange is
//! therefore never a shared register: lowering first copies it to all lanes.

use crate::machine::{Point, ReconvergenceRecorder, Slot, ValueLoc};
use vgpu_ptx::analysis::{Analysis, reads, writes};
use vgpu_ptx::ir::{Kernel, Op, Reg, Terminator};

/// Returns whether lanes may wait at a PTX instruction.
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
            | Op::LdMatrix { .. }
            | Op::StMatrix { .. }
            | Op::MovMatrix { .. }
    )
}

/// Returns the slot of a register that lanes share.
fn shared(places: &[ValueLoc], reg: Reg) -> Option<Slot> {
    match places[reg.0 as usize] {
        ValueLoc::Scalar(slot) => Some(slot),
        ValueLoc::Vector(_) => None,
    }
}

/// Makes the recorder's set that of the terminator of a block.
pub(super) fn restart_at_end(
    kernel: &Kernel,
    block: usize,
    analysis: &Analysis,
    places: &[ValueLoc],
    recorder: &mut ReconvergenceRecorder,
) {
    let guard = match kernel.blocks[block].end {
        Terminator::Branch { guard, .. } => Some(guard.reg),
        _ => None,
    };
    let live = analysis.live_out[block].iter().chain(guard);
    recorder.restart(live.filter_map(|reg| shared(places, reg)));
}

/// Records the shared registers that are read later, at each PTX instruction of a block at which lanes may
/// wait. Returns these instructions with their points, the last instruction first.
pub(super) fn agreements(
    kernel: &Kernel,
    block: usize,
    analysis: &Analysis,
    places: &[ValueLoc],
    recorder: &mut ReconvergenceRecorder,
) -> Vec<(u32, Point)> {
    let mut points = Vec::new();
    let range = kernel.blocks[block].code.clone();
    if !range.clone().any(|index| waits(&kernel.code[index as usize].op)) {
        return points;
    }
    restart_at_end(kernel, block, analysis, places, recorder);
    let shared = |reg: Reg| shared(places, reg);
    for index in range.rev() {
        let op = &kernel.code[index as usize].op;
        writes(op, &mut |reg| {
            if let Some(slot) = shared(reg) {
                recorder.set(slot, false);
            }
        });
        // Lanes that meet at a barrier go on behind it; other instructions are run again by all lanes that
        // meet.
        let barrier = matches!(op, Op::Bar { .. } | Op::BarArrive { .. } | Op::BarRed { .. });
        if barrier {
            points.push((index, recorder.point()));
        }
        reads(op, &mut |reg| {
            if let Some(slot) = shared(reg) {
                recorder.set(slot, true);
            }
        });
        if !barrier && waits(op) {
            points.push((index, recorder.point()));
        }
    }
    points
}
