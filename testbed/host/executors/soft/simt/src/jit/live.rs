//! Which vectors somebody reads behind each piece of code: the others need not be written to the frame.

use std::collections::HashMap;

use super::piece::{Part, Piece, effects};
use super::template::Entry;
use crate::machine::{Slot, Step, Tables};

/// Most words that all sets together may have. Kernels beyond are interpreted.
const LARGEST: usize = 1 << 20;

/// A set of vectors.
type Set = Vec<u64>;

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

/// The pieces that may follow a piece; `None`: code that nobody looks at.
fn followers(pieces: &[Piece], at: usize, steps: &[Step], of: &HashMap<u32, usize>) -> [Option<usize>; 2] {
    match pieces[at].branch {
        Some(Part { index, entry: Entry::Branch { .. }, .. }) => {
            let imm = steps[index].imm;
            [of.get(&(imm as u32)).copied(), of.get(&((imm >> 32) as u32)).copied()]
        }
        // Nobody reads what lanes leave that return; the others have their own.
        Some(Part { entry: Entry::Return, .. }) => [Some(at); 2],
        Some(Part { index, .. }) => [of.get(&(steps[index].imm as u32)).copied(); 2],
        None => [(at + 1 < pieces.len()).then_some(at + 1); 2],
    }
}

/// Finds what lives behind each piece. `None` if that would take too much memory.
pub(super) fn find(pieces: &[Piece], steps: &[Step], tables: &Tables) -> Option<Liveness> {
    let mut numbers = HashMap::new();
    let mut order = Vec::with_capacity(pieces.len());
    for piece in pieces {
        let mut parts: Vec<&Part> = piece.lanes.iter().collect();
        parts.sort_unstable_by_key(|part| part.index);
        let found: Vec<_> = parts
            .into_iter()
            .map(|part| (effects(&steps[part.index], part.entry, tables), steps[part.index].blend))
            .collect();
        for slot in found.iter().flat_map(|(effects, _)| effects.reads.iter().chain(&effects.writes)) {
            let next = numbers.len();
            numbers.entry(*slot).or_insert(next);
        }
        order.push(found);
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
            for next in followers(pieces, at, steps, &of) {
                match next {
                    Some(next) => live.iter_mut().zip(&before[next]).for_each(|(to, from)| *to |= from),
                    None => live.fill(u64::MAX),
                }
            }
            behind[at].clone_from(&live);
            for (effects, blend) in order[at].iter().rev() {
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
