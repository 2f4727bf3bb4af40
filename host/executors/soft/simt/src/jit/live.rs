//! Liveness of vectors between superblocks. A vector that is not live need not be stored to the frame.

use std::collections::HashMap;

use super::effects::Effects;
use super::template::Action;
use crate::machine::{Inst, Slot};

/// Maximum total number of 64-bit words of all sets. Larger kernels are interpreted.
const LARGEST: usize = 1 << 20;

/// Set of vectors, with one bit for each.
type SlotSet = Vec<u64>;

/// A superblock as the input of the liveness analysis.
#[derive(Debug)]
pub(super) struct Segment {
    /// Index of the first instruction.
    pub(super) first: usize,
    /// Whether the interpreter executes the superblock, which may then read every vector.
    pub(super) interpreted: bool,
    pub(super) next: Next,
    /// Effects of each instruction in order, and whether its inactive lanes keep their values.
    pub(super) steps: Vec<(Effects, bool)>,
}

/// Successors of a superblock.
#[derive(Clone, Copy, Debug)]
pub(super) enum Next {
    /// The only successor is the next superblock.
    Behind,
    /// The successors are the superblocks that start at these two instructions.
    Either([u32; 2]),
    /// There is no successor, because all lanes return.
    Nowhere,
}

impl Next {
    /// Returns the successors after an instruction that may end a superblock.
    pub(super) fn after<B>(step: &Inst, entry: &Action<B>) -> Self {
        match entry {
            Action::Branch { .. } => Self::Either([step.imm as u32, (step.imm >> 32) as u32]),
            Action::Goto { .. } => Self::Either([step.imm as u32; 2]),
            Action::Return => Self::Nowhere,
            _ => Self::Behind,
        }
    }
}

/// Vectors that a program uses, and the ones that are live after each superblock.
pub(super) struct Liveness {
    numbers: HashMap<Slot, usize>,
    behind: Vec<SlotSet>,
}

fn with(set: &mut SlotSet, number: usize) {
    set[number / 64] |= 1 << (number % 64);
}

fn without(set: &mut SlotSet, number: usize) {
    set[number / 64] &= !(1 << (number % 64));
}

/// Returns the indices of the superblocks that may follow. `None` stands for code that is not analysed.
fn followers(segments: &[Segment], at: usize, of: &HashMap<u32, usize>) -> [Option<usize>; 2] {
    match segments[at].next {
        Next::Either(steps) => steps.map(|step| of.get(&step).copied()),
        Next::Nowhere => [Some(at); 2],
        Next::Behind => [(at + 1 < segments.len()).then_some(at + 1); 2],
    }
}

/// Computes which vectors are live after each superblock. Returns `None` if that would take too much memory.
pub(super) fn find(segments: &[Segment]) -> Option<Liveness> {
    let mut numbers = HashMap::new();
    for (effects, _) in segments.iter().flat_map(|segment| &segment.steps) {
        for slot in effects.reads.iter().chain(&effects.writes) {
            let next = numbers.len();
            numbers.entry(*slot).or_insert(next);
        }
    }
    let words = numbers.len().div_ceil(64).max(1);
    if words * segments.len() > LARGEST {
        return None;
    }
    let of: HashMap<u32, usize> =
        segments.iter().enumerate().map(|(at, segment)| (segment.first as u32, at)).collect();
    let mut before = vec![vec![0; words]; segments.len()];
    let mut behind = before.clone();
    let mut changed = true;
    while changed {
        changed = false;
        for at in (0..segments.len()).rev() {
            let mut live = vec![0; words];
            for next in followers(segments, at, &of) {
                match next {
                    Some(next) => live.iter_mut().zip(&before[next]).for_each(|(to, from)| *to |= from),
                    None => live.fill(u64::MAX),
                }
            }
            behind[at].clone_from(&live);
            for (effects, blend) in segments[at].steps.iter().rev() {
                if !blend {
                    effects.writes.iter().for_each(|slot| without(&mut live, numbers[slot]));
                }
                effects.reads.iter().for_each(|slot| with(&mut live, numbers[slot]));
            }
            if segments[at].interpreted {
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
    /// Returns whether a vector is live after a superblock.
    pub(super) fn behind(&self, segment: usize, slot: Slot) -> bool {
        self.numbers
            .get(&slot)
            .is_none_or(|number| self.behind[segment][number / 64] >> (number % 64) & 1 != 0)
    }
}
