//! When slots are read and written within a run of steps.

use std::collections::HashMap;

use crate::machine::Slot;

/// When the slots of a piece of code are read and written: the number of the step, and whether it reads.
#[derive(Debug, Default)]
pub(super) struct Uses {
    events: HashMap<u32, Vec<(usize, bool)>>,
    /// Vectors that are read behind the piece.
    live: Vec<u32>,
    /// The steps that read the offsets of each root.
    roots: Vec<Vec<usize>>,
}

impl Uses {
    pub(super) fn reads(&mut self, at: usize, slot: Slot) {
        self.events.entry(slot.offset() as u32).or_default().push((at, true));
    }

    pub(super) fn writes(&mut self, at: usize, slot: Slot) {
        self.events.entry(slot.offset() as u32).or_default().push((at, false));
    }

    pub(super) fn lives(&mut self, slot: Slot) {
        self.live.push(slot.offset() as u32);
    }

    /// Notes that a step accesses memory by a root.
    pub(super) fn reads_root(&mut self, at: usize, root: usize) {
        if self.roots.len() <= root {
            self.roots.resize(root + 1, Vec::new());
        }
        self.roots[root].push(at);
    }

    /// The step that next accesses memory by a root, from the step `at` on.
    pub(super) fn next_of_root(&self, root: usize, at: usize) -> Option<usize> {
        self.roots.get(root)?.iter().copied().find(|when| *when >= at)
    }

    /// The next event of a slot from the step `at` on.
    pub(super) fn next(&self, slot: u32, at: usize) -> Option<(usize, bool)> {
        self.events.get(&slot).and_then(|events| events.iter().find(|(when, _)| *when >= at).copied())
    }

    /// The step that next reads the value that a slot has, from the step `at` on. `usize::MAX`: it is read
    /// behind the piece.
    pub(super) fn next_read(&self, slot: u32, at: usize) -> Option<usize> {
        match self.next(slot, at) {
            Some((when, true)) => Some(when),
            Some((_, false)) => None,
            None => self.live.contains(&slot).then_some(usize::MAX),
        }
    }
}
