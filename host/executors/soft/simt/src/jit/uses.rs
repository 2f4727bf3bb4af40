//! Records which instructions of a superblock read and write each slot.

use std::collections::HashMap;

use crate::machine::Slot;

/// Accesses of each slot, and the vectors that are live at the end of the superblock.
#[derive(Debug, Default)]
pub(super) struct Uses {
    events: HashMap<u32, Vec<(usize, bool)>>,
    /// Offsets of the vectors that are read after the superblock.
    live: Vec<u32>,
    /// Indices of the instructions that read the offsets of each address vector.
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

    /// Returns the index of the next instruction that accesses memory through an address vector, from `at`
    /// on.
    pub(super) fn next_of_root(&self, root: usize, at: usize) -> Option<usize> {
        self.roots.get(root)?.iter().copied().find(|when| *when >= at)
    }

    /// Returns the next access of a slot from the instruction `at` on: its index, and whether it reads.
    pub(super) fn next(&self, slot: u32, at: usize) -> Option<(usize, bool)> {
        self.events.get(&slot).and_then(|events| events.iter().find(|(when, _)| *when >= at).copied())
    }

    /// Returns the index of the next instruction that reads the current value of a slot, from `at` on. It is
    /// `usize::MAX` if the value is read only after the superblock.
    pub(super) fn next_read(&self, slot: u32, at: usize) -> Option<usize> {
        match self.next(slot, at) {
            Some((when, true)) => Some(when),
            Some((_, false)) => None,
            None => self.live.contains(&slot).then_some(usize::MAX),
        }
    }
}
