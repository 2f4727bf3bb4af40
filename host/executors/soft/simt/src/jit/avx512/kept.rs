//! What registers keep for later steps besides the vectors of the frame: offsets of roots, words that were loaded
//! ahead, and what products have too much.

use iced_x86::code_asm::AsmRegisterZmm;

use super::cache::Cache;
use super::registers::ZMM;
use super::value::{Key, Value, offsets};
use crate::jit::value::Emit;
use crate::machine::Slot;

impl Cache<'_> {
    /// Writes the offsets of a root to memory, from where those of single lanes are loaded.
    pub(super) fn store_offsets(&mut self, place: usize, both: [AsmRegisterZmm; 2]) -> Emit {
        for (half, register) in both.into_iter().enumerate() {
            self.asm.vmovdqu64(offsets(place, half), register)?;
        }
        Ok(())
    }

    /// Keeps the offsets of a root, which are in memory, too.
    pub(super) fn keep_offsets(&mut self, place: usize, both: [AsmRegisterZmm; 2]) {
        for (half, register) in both.into_iter().enumerate() {
            self.bind(register, Value::clean(Key::Offsets(place, half)));
        }
    }

    /// Reads the offsets of a root.
    pub(super) fn read_offsets(&mut self, place: usize) -> Emit<[AsmRegisterZmm; 2]> {
        Ok([self.read_key(Key::Offsets(place, 0), false)?, self.read_key(Key::Offsets(place, 1), false)?])
    }

    /// Keeps what was loaded for a step ahead of it.
    pub(super) fn keep_ahead(&mut self, (step, word): (usize, usize), both: [AsmRegisterZmm; 2]) {
        for (half, register) in both.into_iter().enumerate() {
            self.bind(register, Value::clean(Key::Ahead(step, word, half)));
        }
    }

    /// What was loaded for a word of this step ahead of it, if it is still there.
    pub(super) fn ahead(&mut self, word: usize) -> Option<[AsmRegisterZmm; 2]> {
        let both = [0, 1].map(|half| self.find(Key::Ahead(self.now, word, half)));
        let [Some(low), Some(high)] = both else { return None };
        self.pinned |= 1 << low | 1 << high;
        Some([ZMM[low], ZMM[high]])
    }

    /// What products with the bytes of a vector have too much, if it is known.
    pub(super) fn excess(&mut self, slot: Slot) -> Option<AsmRegisterZmm> {
        let at = self.find(Key::Excess(slot.offset() as u32, self.half))?;
        self.pinned |= 1 << at;
        Some(ZMM[at])
    }

    /// Keeps it.
    pub(super) fn keep_excess(&mut self, slot: Slot, register: AsmRegisterZmm) {
        self.bind(register, Value::clean(Key::Excess(slot.offset() as u32, self.half)));
    }
}
