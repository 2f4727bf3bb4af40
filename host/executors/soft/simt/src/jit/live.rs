//! Which vectors somebody reads behind each piece of code: the others need not be written to the frame.

use std::collections::HashMap;

use super::effects::Effects;
use super::template::Entry;
use crate::machine::{Inst, Slot};

/// Most words that all sets together may have. Kernels beyond are interpreted.
const LARGEST: usize = 1 << 20;

/// A set of vectors.
type Set = Vec<u64>;

/// A run of steps as far as liveness goes.
#[derive(Debug)]
pub(super) struct Segment {
    /// The first step.
    pub(super) first: usize,
    /// Whether the interpreter does it, which may read everything.
    pub(super) foreign: bool,
    pub(super) next: Next,
    /// What its steps read and write, in order, and whether inactive lanes keep what they had.
    pub(super) steps: Vec<(Effects, bool)>,
}

/// Where a segment ends.
#[derive(Clone, Copy, Debug)]
pub(super) enum Next {
    /// The next one follows.
    Behind,
    /// One that begins with one of two steps.
    Either([u32; 2]),
    /// Lanes return. Nobody reads what they leave; the others have their own.
    Nowhere,
}

impl Next {
    /// Where the step at the end of a segment goes.
    pub(super) fn after<B>(step: &Inst, entry: &Entry<B>) -> Self {
        match entry {
            Entry::Branch { .. } => Self::Either([step.imm as u32, (step.imm >> 32) as u32]),
            Entry::Goto { .. } => Self::Either([step.imm as u32; 2]),
            Entry::Return => Self::Nowhere,
            _ => Self::Behind,
        }
    }
}

/// The vectors that pieces use, and which of them live behind each piece.
pub(super) struct Liveness {
    numbers: HashMap<Slot, usize>,
    behind: Vec<Set>,
}

fn with(set: &mut Set, number: usize) {
    set[number / 64] |= 1 << (number % 64);
}

fn without(set: &mut Set, number: usize) {
    set[number / 64] &= !(1 << (number % 64));
}

/// The segments that may follow a segment; `None`: code that nobody looks at.
fn followers(segments: &[Segment], at: usize, of: &HashMap<u32, usize>) -> [Option<usize>; 2] {
    match segments[at].next {
        Next::Either(steps) => steps.map(|step| of.get(&step).copied()),
        Next::Nowhere => [Some(at); 2],
        Next::Behind => [(at + 1 < segments.len()).then_some(at + 1); 2],
    }
}

/// Finds what lives behind each segment. `None` if that would take too much memory.
pub(super) fn find(pieces: &[Segment]) -> Option<Liveness> {
    let mut numbers = HashMap::new();
    for (effects, _) in pieces.iter().flat_map(|piece| &piece.steps) {
        for slot in effects.reads.iter().chain(&effects.writes) {
            let next = numbers.len();
            numbers.entry(*slot).or_insert(next);
        }
    }
    let words = numbers.len().div_ceil(64).max(1);
    if words * pieces.len() > LARGEST {
        return None;
    }
    let of: HashMap<u32, usize> =
        pieces.iter().enumerate().map(|(at, piece)| (piece.first as u32, at)).collect();
    let mut before = vec![vec![0; words]; pieces.len()];
    let mut behind = before.clone();
    let mut changed = true;
    while changed {
        changed = false;
        for at in (0..pieces.len()).rev() {
            let mut live = vec![0; words];
            for next in followers(pieces, at, &of) {
                match next {
                    Some(next) => live.iter_mut().zip(&before[next]).for_each(|(to, from)| *to |= from),
                    None => live.fill(u64::MAX),
                }
            }
            behind[at].clone_from(&live);
            for (effects, blend) in pieces[at].steps.iter().rev() {
                if !blend {
                    effects.writes.iter().for_each(|slot| without(&mut live, numbers[slot]));
                }
                effects.reads.iter().for_each(|slot| with(&mut live, numbers[slot]));
            }
            if pieces[at].foreign {
                live.fill(u64::MAX);
            }
            if live != before[at] {
                before[at] = live;
                changed = true;
            }
        }
    }
    Some(Liveness { numbers, behind })
}

impl Liveness {
    /// Whether a vector is read behind a piece.
    pub(super) fn behind(&self, piece: usize, slot: Slot) -> bool {
        self.numbers.get(&slot).is_none_or(|number| self.behind[piece][number / 64] >> (number % 64) & 1 != 0)
    }
}
