//! The reads and writes of slots within a superblock.

use std::collections::HashMap;

use crate::machine::Slot;

/// For each slot, its accesses: the index of the instruction, and whether it reads.
#[derive(Debug, Default)]
pub(super) struct Uses {
    events: HashMap<u32, Vec<(usize, bool)>>,
    /// Vectors that are live after the superblock.
    live: Vec<u32>,
    /// For each address vector, the instructions that read its offsets.
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

    /// Records that an instruction accesses memory through an address vector.
    pub(super) fn reads_root(&mut self, at: usize, root: usize) {
        if self.roots.len() <= root {
            self.roots.resize(root + 1, Vec::new());
        }
        self.roots[root].push(at);
    }

    /// Index of the next instruction that accesses memory through an address vector, from `at` on.
    pub(super) fn next_of_root(&self, root: usize, at: usize) -> Option<usize> {
        self.roots.get(root)?.iter().copied().find(|when| *when >= at)
    }

    /// The next access of a slot, from the instruction `at` on.
    pub(super) fn next(&self, slot: u32, at: usize) -> Option<(usize, bool)> {
        self.events.get(&slot).and_then(|events| events.iter().find(|(when, _)| *when >= at).copied())
    }

    /// Index of the next instruction that reads the current value of a slot, from `at` on. `usize::MAX` if it
    /// is read only after the superblock.
    pub(super) fn next_read(&self, slot: u32, at: usize) -> Option<usize> {
        match self.next(slot, at) {
            Some((when, true)) => Some(when),
            Some((_, false)) => None,
            None => self.live.contains(&slot).then_some(usize::MAX),
        }
    }
}
