//! Pieces: runs of steps that machine code does as a whole. It checks everything that could go wrong first,
//! then computes scalars, and then takes eight lanes at a time through all of the piece's steps.
//!
//! A piece that is left is therefore left before its first step, and the interpreter does what is rare.

use std::collections::HashSet;

use super::body::{Entry, Template};
use super::table;
use crate::jit::effects::{distance, effects, flushing};
use crate::jit::live::{Next, Segment};
use crate::jit::template::{Flush, Group, Memory};
use crate::jit::value::Kind;
use crate::machine::{Inst, PLACES, Slot, Tables};

/// Steps of a piece at most, so that code and the work of assembling it stay in proportion.
const LONGEST: usize = 192;
/// How far accesses may lie apart that are checked together.
const FARTHEST: i64 = 1 << 16;
/// Comparisons of a piece at most: each collects its bits in a register.
pub(super) const COMPARISONS: usize = 4;

/// A step and what is done for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) index: usize,
    pub(super) entry: Entry,
    /// Where the context keeps what is known of its access.
    pub(super) place: usize,
}

/// A run of steps.
#[derive(Debug, Default)]
pub(super) struct Piece {
    /// The first step.
    pub(super) first: usize,
    pub(super) scalars: Vec<Part>,
    pub(super) lanes: Vec<Part>,
    /// The branch at its end.
    pub(super) branch: Option<Part>,
    /// Whether the interpreter does it.
    pub(super) foreign: bool,
    pub(super) groups: Vec<Group>,
    places: usize,
    comparisons: usize,
    loads: bool,
    full: bool,
    seen: Seen,
}

/// The slots that the steps for lanes have used so far.
#[derive(Debug, Default)]
struct Seen {
    scalars_read: HashSet<Slot>,
    predicates_written: HashSet<Slot>,
    vectors_written: HashSet<Slot>,
    scalars_written: HashSet<Slot>,
}

/// Whether a step goes through the lanes.
fn is_lanes(entry: Entry) -> bool {
    match entry {
        Entry::Lanes(Template { dst, .. }) => !matches!(dst, Kind::Scalar { .. }),
        Entry::Dot4(_)
        | Entry::Fields
        | Entry::Load(_)
        | Entry::LoadTwo(_)
        | Entry::Store(_)
        | Entry::Butterfly { .. } => true,
        _ => false,
    }
}

/// Divides steps into pieces. `starts` are the steps at which other code may go on; `flush` says whether
/// floats of the code are flushed.
pub(super) fn divide(steps: &[Inst], tables: &Tables, starts: &HashSet<u32>, flush: bool) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut piece = Piece::default();
    for (index, step) in steps.iter().enumerate() {
        let unfit = if flush { Flush::Never } else { Flush::Always };
        let entry = table::template(step).filter(|entry| flushing(*entry) != unfit);
        let begin = |pieces: &mut Vec<Piece>, piece: &mut Piece| {
            if piece.first < index {
                pieces.push(std::mem::take(piece));
            }
            *piece = Piece { first: index, ..Piece::default() };
        };
        if starts.contains(&(index as u32)) || piece.full {
            begin(&mut pieces, &mut piece);
        }
        let Some(entry) = entry else {
            begin(&mut pieces, &mut piece);
            (piece.foreign, piece.full) = (true, true);
            continue;
        };
        if !piece.take(index, steps, entry, tables) {
            begin(&mut pieces, &mut piece);
            piece.take(index, steps, entry, tables);
        }
    }
    if piece.first < steps.len() {
        pieces.push(piece);
    }
    pieces
}

impl Piece {
    /// Adds a step. Returns whether it could: not if it would have to be done before one that is there.
    fn take(&mut self, index: usize, steps: &[Inst], entry: Entry, tables: &Tables) -> bool {
        let step = &steps[index];
        if index - self.first >= LONGEST {
            return false;
        }
        let effects = effects(step, entry, tables);
        if matches!(entry, Entry::Goto { .. } | Entry::Branch { .. } | Entry::Return) {
            self.branch = Some(Part { index, entry, place: 0 });
            self.full = true;
            return true;
        }
        let compared = |slot: &Slot| self.seen.predicates_written.contains(slot);
        let logic =
            matches!(entry, Entry::Logic { shared: false }) && effects.scalar_reads.iter().all(compared);
        let lanes = is_lanes(entry) || logic;
        let checked = matches!(
            entry,
            Entry::Load(_)
                | Entry::LoadTwo(_)
                | Entry::Store(_)
                | Entry::LoadScalar(_)
                | Entry::Butterfly { .. }
        );
        if checked {
            // The check comes before all steps of the piece.
            let mut needs = vec![step.a];
            if matches!(entry, Entry::Butterfly { .. }) {
                needs.push(step.b);
            }
            let made = |slot: &Slot| {
                self.seen.vectors_written.contains(slot) || self.seen.scalars_written.contains(slot)
            };
            if self.places == PLACES || needs.iter().any(made) {
                return false;
            }
        }
        if matches!(entry, Entry::Store(_)) {
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
            // Scalars of the piece are computed before: these read what they are at its end.
            self.comparisons += usize::from(predicate);
            self.seen.scalars_read.extend(effects.scalar_reads);
            self.seen.predicates_written.extend(effects.scalar_writes);
            self.seen.vectors_written.extend(effects.writes);
            self.loads |= matches!(entry, Entry::Load(_) | Entry::LoadTwo(_));
            let place = self.group(index, step, entry, steps);
            self.lanes.push(Part { index, entry, place });
            self.places += usize::from(checked && place == self.places);
        } else {
            let written = |slot: &Slot| {
                self.seen.scalars_read.contains(slot) || self.seen.predicates_written.contains(slot)
            };
            let read = |slot: &Slot| self.seen.predicates_written.contains(slot);
            if effects.scalar_writes.iter().any(written) || effects.scalar_reads.iter().any(read) {
                return false;
            }
            self.seen.scalars_written.extend(effects.scalar_writes);
            self.scalars.push(Part { index, entry, place: self.places });
        }
        true
    }

    /// The place of a step's access: that of a group which it joins, or a new one.
    fn group(&mut self, index: usize, step: &Inst, entry: Entry, steps: &[Inst]) -> usize {
        let (elements, write) = match entry {
            Entry::Load(elements) | Entry::LoadTwo(elements) => (elements, false),
            Entry::Store(elements) => (elements, true),
            _ => return self.places,
        };
        let from = distance(step, elements.memory);
        let to = from + i64::from(elements.reach(write));
        let align = elements.align;
        let local = matches!(elements.memory, Memory::Local { .. });
        let found = self.groups.iter_mut().find(|group| {
            let first = &steps[group.index];
            let apart = from - distance(first, group.memory);
            // Words of local memory lie rows apart.
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
        self.groups.push(Group { index, place, memory: elements.memory, write, from, to, align });
        place
    }

    /// What liveness needs to know of it.
    pub(super) fn segment(&self, steps: &[Inst], tables: &Tables) -> Segment {
        let mut parts: Vec<&Part> = self.lanes.iter().collect();
        parts.sort_unstable_by_key(|part| part.index);
        let effects =
            |part: &Part| (effects(&steps[part.index], part.entry, tables), steps[part.index].blend);
        let next = self.branch.map_or(Next::Behind, |part| Next::after(&steps[part.index], &part.entry));
        let steps = parts.into_iter().map(effects).collect();
        Segment { first: self.first, foreign: self.foreign, next, steps }
    }

    /// The steps that are checked before anything is done.
    pub(super) fn checked(&self) -> impl Iterator<Item = &Part> {
        self.scalars.iter().chain(&self.lanes)
    }
}
