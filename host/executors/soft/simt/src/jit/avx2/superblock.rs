//! Superblocks: sequences of instructions that machine code executes as a whole. The code performs all checks
//! first, then computes the scalars, and then executes the vector instructions for eight lanes at a time.
//!
//! If a check fails, the code exits before the first instruction, and the interpreter runs the superblock.

use std::collections::HashSet;

use super::body::{Action, Template};
use super::table;
use crate::jit::effects::{distance, effects, flushing};
use crate::jit::live::{Next, Segment};
use crate::jit::template::{CoalescedCheck, Flush, MemSpace};
use crate::jit::value::SlotKind;
use crate::machine::{Inst, PLACES, Slot, Tables};

/// Maximum number of instructions in a superblock. It limits the size of the code and the time to assemble
/// it.
const LONGEST: usize = 192;
/// Maximum distance of accesses that share a check, in bytes.
const FARTHEST: i64 = 1 << 16;
/// Maximum number of comparisons in a superblock. Each needs a register for its result.
pub(super) const COMPARISONS: usize = 4;

/// An instruction of a superblock with its template.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockPart {
    pub(super) index: usize,
    pub(super) entry: Action,
    /// Index in the context of the offsets and bounds of the instruction's access.
    pub(super) place: usize,
}

/// A sequence of instructions with a single entry.
#[derive(Debug, Default)]
pub(super) struct Superblock {
    /// Index of the first instruction.
    pub(super) first: usize,
    pub(super) scalars: Vec<BlockPart>,
    pub(super) lanes: Vec<BlockPart>,
    /// Branch that ends the superblock, if there is one.
    pub(super) branch: Option<BlockPart>,
    /// Whether the interpreter runs the superblock, because its only instruction has no template.
    pub(super) interpreted: bool,
    pub(super) groups: Vec<CoalescedCheck>,
    places: usize,
    comparisons: usize,
    loads: bool,
    full: bool,
    used: SlotUse,
}

/// Slots that the instructions so far have read or written.
#[derive(Debug, Default)]
struct SlotUse {
    scalars_read: HashSet<Slot>,
    predicates_written: HashSet<Slot>,
    vectors_written: HashSet<Slot>,
    scalars_written: HashSet<Slot>,
}

/// Returns whether an instruction is executed for each lane.
fn is_lanes(entry: Action) -> bool {
    match entry {
        Action::Lanes(Template { dst, .. }) => !matches!(dst, SlotKind::Scalar { .. }),
        Action::Dot4(_)
        | Action::Fields
        | Action::Load(_)
        | Action::LoadTwo(_)
        | Action::Store(_)
        | Action::Butterfly { .. } => true,
        _ => false,
    }
}

/// Divides a program into superblocks. `starts` are the instructions at which other code may continue.
/// `flush` tells whether the code runs with subnormal floats flushed.
pub(super) fn divide(steps: &[Inst], tables: &Tables, starts: &HashSet<u32>, flush: bool) -> Vec<Superblock> {
    let mut superblocks = Vec::new();
    let mut superblock = Superblock::default();
    for (index, step) in steps.iter().enumerate() {
        let unfit = if flush { Flush::Never } else { Flush::Always };
        let entry = table::templates().get(step).filter(|entry| flushing(*entry) != unfit);
        let begin = |superblocks: &mut Vec<Superblock>, superblock: &mut Superblock| {
            if superblock.first < index {
                superblocks.push(std::mem::take(superblock));
            }
            *superblock = Superblock { first: index, ..Superblock::default() };
        };
        if starts.contains(&(index as u32)) || superblock.full {
            begin(&mut superblocks, &mut superblock);
        }
        let Some(entry) = entry else {
            begin(&mut superblocks, &mut superblock);
            (superblock.interpreted, superblock.full) = (true, true);
            continue;
        };
        if !superblock.append(index, steps, entry, tables) {
            begin(&mut superblocks, &mut superblock);
            superblock.append(index, steps, entry, tables);
        }
    }
    if superblock.first < steps.len() {
        superblocks.push(superblock);
    }
    superblocks
}

impl Superblock {
    /// Appends an instruction. Returns false if it would have to be executed before an earlier one, or if the
    /// superblock is too long.
    fn append(&mut self, index: usize, steps: &[Inst], entry: Action, tables: &Tables) -> bool {
        let step = &steps[index];
        if index - self.first >= LONGEST {
            return false;
        }
        let effects = effects(step, tables);
        if matches!(entry, Action::Goto { .. } | Action::Branch { .. } | Action::Return) {
            self.branch = Some(BlockPart { index, entry, place: 0 });
            self.full = true;
            return true;
        }
        let compared = |slot: &Slot| self.used.predicates_written.contains(slot);
        let logic =
            matches!(entry, Action::Logic { shared: false }) && effects.scalar_reads.iter().all(compared);
        let lanes = is_lanes(entry) || logic;
        let checked = matches!(
            entry,
            Action::Load(_)
                | Action::LoadTwo(_)
                | Action::Store(_)
                | Action::LoadScalar(_)
                | Action::Butterfly { .. }
        );
        if checked {
            // All checks precede the instructions of the superblock, so none of these may produce an address.
            let mut needs = vec![step.a];
            if matches!(entry, Action::Butterfly { .. }) {
                needs.push(step.b);
            }
            let made = |slot: &Slot| {
                self.used.vectors_written.contains(slot) || self.used.scalars_written.contains(slot)
            };
            if self.places == PLACES || needs.iter().any(made) {
                return false;
            }
        }
        if matches!(entry, Action::Store(_)) {
            if self.loads {
                return false;
            }
            self.full = true;
        }
        if lanes {
            let predicate = !effects.scalar_writes.is_empty();
            if predicate && self.comparisons == COMPARISONS {
                return false;
            }
            // Scalars are computed first: a vector instruction reads their values at the end of the
            // superblock.
            self.comparisons += usize::from(predicate);
            self.used.scalars_read.extend(effects.scalar_reads);
            self.used.predicates_written.extend(effects.scalar_writes);
            self.used.vectors_written.extend(effects.writes);
            self.loads |= matches!(entry, Action::Load(_) | Action::LoadTwo(_));
            let place = self.group(index, step, entry, steps);
            self.lanes.push(BlockPart { index, entry, place });
            self.places += usize::from(checked && place == self.places);
        } else {
            let written = |slot: &Slot| {
                self.used.scalars_read.contains(slot) || self.used.predicates_written.contains(slot)
            };
            let read = |slot: &Slot| self.used.predicates_written.contains(slot);
            if effects.scalar_writes.iter().any(written) || effects.scalar_reads.iter().any(read) {
                return false;
            }
            self.used.scalars_written.extend(effects.scalar_writes);
            self.scalars.push(BlockPart { index, entry, place: self.places });
        }
        true
    }

    /// Returns the context's slot for an access: that of a check which it joins, or a new one.
    fn group(&mut self, index: usize, step: &Inst, entry: Action, steps: &[Inst]) -> usize {
        let (elements, write) = match entry {
            Action::Load(elements) | Action::LoadTwo(elements) => (elements, false),
            Action::Store(elements) => (elements, true),
            _ => return self.places,
        };
        let from = distance(step, elements.memory);
        let to = from + i64::from(elements.reach(write));
        let align = elements.align;
        let local = matches!(elements.memory, MemSpace::Local { .. });
        let found = self.groups.iter_mut().find(|group| {
            let first = &steps[group.index];
            let apart = from - distance(first, group.memory);
            // Adjacent words of local memory are a row apart.
            first.a == step.a
                && (!local || apart == 0)
                && (group.memory, group.write) == (elements.memory, write)
                && apart.unsigned_abs().is_multiple_of(u64::from(align.max(group.align)))
                && group.to.max(to) - group.from.min(from) <= FARTHEST
        });
        if let Some(group) = found {
            group.from = group.from.min(from);
            group.to = group.to.max(to);
            group.align = group.align.max(align);
            return group.place;
        }
        let place = self.places;
        self.groups.push(CoalescedCheck { index, place, memory: elements.memory, write, from, to, align });
        place
    }

    /// Describes the superblock to the liveness analysis.
    pub(super) fn segment(&self, steps: &[Inst], tables: &Tables) -> Segment {
        let mut parts: Vec<&BlockPart> = self.lanes.iter().collect();
        parts.sort_unstable_by_key(|part| part.index);
        let effects = |part: &BlockPart| (effects(&steps[part.index], tables), steps[part.index].blend);
        let next = self.branch.map_or(Next::Behind, |part| Next::after(&steps[part.index], &part.entry));
        let steps = parts.into_iter().map(effects).collect();
        Segment { first: self.first, interpreted: self.interpreted, next, steps }
    }

    /// Iterates over the instructions whose accesses or members are checked.
    pub(super) fn checked(&self) -> impl Iterator<Item = &BlockPart> {
        self.scalars.iter().chain(&self.lanes)
    }
}
