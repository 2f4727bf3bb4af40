//! Meetings: the lanes of a warp execute an instruction together, as its member mask tells.
//!
//! The members mostly belong to one split. Splits that arrive at the same instruction for the same members
//! are merged if they agree on the registers that their lanes share. Otherwise they stay apart: once all
//! members have arrived, each split gets copies of the lanes of the others, executes the instruction for all
//! members, and goes on with its own lanes alone. The members of a `bar.warp.sync` exchange nothing, and need
//! not wait at the same one. No value that lanes exchange is in a shared register, so that each split
//! computes what one warp would.

use crate::fault::Fault;
use crate::machine::{Env, LEAVE, LaneRegisters, Opcode, SlotKind, SplitState, Variant, WarpSplit};

use super::merge::merge_splits;

/// What waits for the lanes of `wanted` of a warp: the instruction `pc`, or if `None` any `bar.warp.sync`,
/// whose members may meet at different ones (PTX ISA, "bar.warp.sync").
#[derive(Clone, Copy, PartialEq)]
struct Meeting {
    warp: u32,
    pc: Option<u32>,
    wanted: u32,
}

/// Returns the meeting at which the lanes of a split wait.
fn meeting(split: &WarpSplit, variant: &Variant) -> Option<Meeting> {
    let SplitState::Reconverging { pc, wanted } = split.state else { return None };
    let anywhere = variant.code.inst(pc).opcode == Opcode::SyncWarp;
    Some(Meeting { warp: split.warp.index, pc: (!anywhere).then_some(pc), wanted })
}

/// Returns the lanes that have arrived at a meeting.
fn arrived(splits: &[WarpSplit], at: Meeting, variant: &Variant) -> u32 {
    let there = splits.iter().filter(|split| meeting(split, variant) == Some(at));
    there.fold(0, |lanes, split| lanes | split.warp.mask)
}

/// Tells all splits of a warp which of its lanes have not returned, and returns these.
pub(super) fn count_alive(splits: &mut [WarpSplit], warp: u32) -> u32 {
    let here = |split: &WarpSplit| split.warp.index == warp && !matches!(split.state, SplitState::Done);
    let alive = splits.iter().filter(|split| here(split)).fold(0, |all, split| all | split.warp.lanes());
    for split in splits.iter_mut().filter(|split| here(split)) {
        split.warp.alive = alive;
    }
    alive
}

/// Lets the running lanes of a split wait at the instruction `pc` for the lanes of `wanted`, after it has
/// been merged with others that wait there. Returns whether lanes are still missing.
pub(super) fn arrive(
    splits: &mut [WarpSplit],
    index: usize,
    (pc, wanted): (u32, u32),
    variant: &Variant,
) -> bool {
    let warp = splits[index].warp.index;
    let alive = count_alive(splits, warp);
    let mut agreement = None;
    for other in 0..splits.len() {
        let SplitState::Reconverging { pc: at, wanted: lanes } = splits[other].state else { continue };
        if other != index && splits[other].warp.index == warp && (at, lanes) == (pc, wanted) {
            let agreement =
                agreement.get_or_insert_with(|| variant.reconvergence.at_inst(pc).unwrap_or_default());
            merge_splits(splits, index, other, &variant.registers, agreement);
        }
    }
    let missing = wanted & alive & !splits[index].warp.mask != 0;
    splits[index].state = if missing { SplitState::Reconverging { pc, wanted } } else { SplitState::At(pc) };
    missing
}

/// Lets the splits of a warp go on for which no lane is missing any more: all members have arrived, if in
/// several splits, or have returned.
pub(super) fn release(
    splits: &mut [WarpSplit],
    warp: u32,
    variant: &Variant,
    env: &mut Env<'_>,
) -> Result<(), Fault> {
    let waits = |split: &WarpSplit| matches!(split.state, SplitState::Reconverging { .. });
    if !splits.iter().any(|split| split.warp.index == warp && waits(split)) {
        return Ok(());
    }
    let alive = count_alive(splits, warp);
    for index in 0..splits.len() {
        let Some(at) = meeting(&splits[index], variant).filter(|at| at.warp == warp) else { continue };
        if at.wanted & alive & !arrived(splits, at, variant) == 0 {
            execute(splits, at, variant, env)?;
        }
    }
    Ok(())
}

/// Executes the lowest instruction at which lanes wait without the missing ones, which cannot arrive. Returns
/// whether there is one.
pub(super) fn give_up(splits: &mut [WarpSplit], variant: &Variant, env: &mut Env<'_>) -> Result<bool, Fault> {
    let lowest = splits.iter().filter_map(|split| match split.state {
        SplitState::Reconverging { pc, .. } => Some((pc, meeting(split, variant)?)),
        _ => None,
    });
    let Some((_, at)) = lowest.min_by_key(|(pc, _)| *pc) else { return Ok(false) };
    execute(splits, at, variant, env)?;
    Ok(true)
}

/// Returns the registers of lanes that an instruction reads.
fn exchanged(variant: &Variant, pc: u32) -> LaneRegisters {
    let mut registers = LaneRegisters::default();
    variant.code.inst(pc).operands(&variant.tables, |slot, kind, written| match kind {
        SlotKind::Vector { wide: false } if !written => registers.narrow.push(slot),
        SlotKind::Vector { wide: true } if !written => registers.wide.push(slot),
        SlotKind::Predicate if !written => registers.predicates.push(slot),
        _ => {}
    });
    registers
}

/// Executes the instruction of a meeting for all lanes that have arrived, in each of their splits.
fn execute(splits: &mut [WarpSplit], at: Meeting, variant: &Variant, env: &mut Env<'_>) -> Result<(), Fault> {
    let members = arrived(splits, at, variant);
    let there: Vec<usize> =
        (0..splits.len()).filter(|&index| meeting(&splits[index], variant) == Some(at)).collect();
    // No split executes the instruction before all have got the lanes of the others.
    let exchanged = at.pc.map(|pc| exchanged(variant, pc)).unwrap_or_default();
    for &to in &there {
        for &from in there.iter().filter(|&&from| from != to) {
            let [to, from] = splits.get_disjoint_mut([to, from]).expect("two splits");
            exchanged.copy_lanes(&from.warp.frame, &mut to.warp.frame, from.warp.mask);
        }
    }
    for &index in &there {
        let WarpSplit { warp, state, .. } = &mut splits[index];
        let SplitState::Reconverging { pc, .. } = *state else { continue };
        let (own, alive) = (warp.mask, warp.alive);
        (warp.mask, warp.alive) = (members, members);
        let next = variant.code.step(warp, env, pc);
        (warp.mask, warp.alive) = (own, alive);
        if next == LEAVE {
            return Err(env.fault.take().unwrap_or(Fault::Stopped));
        }
        *state = SplitState::At(next);
    }
    Ok(())
}

/// Merges a split whose turn is over with others of its warp that continue at the same instruction `pc`, if
/// lanes meet there. One of the two splits must have no pending lanes.
pub(super) fn rejoin(splits: &mut [WarpSplit], index: usize, pc: u32, variant: &Variant) {
    let warp = splits[index].warp.index;
    let mut agreement = None;
    for other in 0..splits.len() {
        let same = matches!(splits[other].state, SplitState::At(at) if at == pc);
        if other == index || !same || splits[other].warp.index != warp {
            continue;
        }
        let Some(agreement) = agreement.get_or_insert_with(|| variant.reconvergence.at_inst(pc)) else {
            return;
        };
        if splits[other].warp.is_empty() {
            merge_splits(splits, index, other, &variant.registers, agreement);
        } else if splits[index].warp.is_empty() {
            merge_splits(splits, other, index, &variant.registers, agreement);
            if matches!(splits[index].state, SplitState::Done) {
                return;
            }
        }
    }
}
