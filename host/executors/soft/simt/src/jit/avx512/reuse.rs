//! Register values, besides the vectors of the frame, that later instructions reuse: offsets of address
//! vectors, words loaded ahead of their instruction, and the bias of dp4a.

use iced_x86::code_asm::AsmRegisterZmm;

use super::cache::Cache;
use super::registers::ZMM;
use super::value::{RegisterValue, ValueKey, offsets};
use crate::jit::value::Emit;
use crate::machine::Slot;

impl Cache<'_> {
    /// Stores the offsets of an address vector to memory, from which those of single lanes are loaded.
    pub(super) fn store_offsets(&mut self, place: usize, both: [AsmRegisterZmm; 2]) -> Emit {
        for (half, register) in both.into_iter().enumerate() {
            self.asm.vmovdqu64(offsets(place, half), register)?;
        }
        Ok(())
    }

    /// Records that two registers hold the offsets of an address vector, which are also in memory.
    pub(super) fn cache_offsets(&mut self, place: usize, both: [AsmRegisterZmm; 2]) {
        for (half, register) in both.into_iter().enumerate() {
            self.bind(register, RegisterValue::clean(ValueKey::Offsets(place, half)));
        }
    }

    /// Returns registers with the offsets of an address vector.
    pub(super) fn read_offsets(&mut self, place: usize) -> Emit<[AsmRegisterZmm; 2]> {
        Ok([
            self.read_key(ValueKey::Offsets(place, 0), false)?,
            self.read_key(ValueKey::Offsets(place, 1), false)?,
        ])
    }

    /// Records that two registers hold a word that a later instruction loads.
    pub(super) fn cache_preloaded(&mut self, (step, word): (usize, usize), both: [AsmRegisterZmm; 2]) {
        for (half, register) in both.into_iter().enumerate() {
            self.bind(register, RegisterValue::clean(ValueKey::Preloaded(step, word, half)));
        }
    }

    /// Returns the registers with a word of the current instruction that was loaded ahead of it, if they
    /// still hold it.
    pub(super) fn preloaded(&mut self, word: usize) -> Option<[AsmRegisterZmm; 2]> {
        let both = [0, 1].map(|half| self.find(ValueKey::Preloaded(self.now, word, half)));
        let [Some(low), Some(high)] = both else { return None };
        self.pinned |= 1 << low | 1 << high;
        Some([ZMM[low], ZMM[high]])
    }

    /// Returns the bias of products with this vector, if a register holds it.
    pub(super) fn dp4a_bias(&mut self, slot: Slot) -> Option<AsmRegisterZmm> {
        let at = self.find(ValueKey::Dp4aBias(slot.offset() as u32, self.half))?;
        self.pinned |= 1 << at;
        Some(ZMM[at])
    }

    /// Records that a register holds the bias of products with this vector.
    pub(super) fn cache_dp4a_bias(&mut self, slot: Slot, register: AsmRegisterZmm) {
        self.bind(register, RegisterValue::clean(ValueKey::Dp4aBias(slot.offset() as u32, self.half)));
    }
}
