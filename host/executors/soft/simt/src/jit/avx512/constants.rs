//! Provides constants as operands of instructions.

use iced_x86::code_asm::{AsmMemoryOperand, CodeLabel, dword_bcst, dword_ptr, qword_bcst, zmmword_ptr};

use super::cache::Cache;

impl Cache<'_> {
    /// Returns a broadcast operand with a constant in all lanes of 32 bits. It must be the last operand.
    pub(super) fn constant(&mut self, value: u32) -> AsmMemoryOperand {
        dword_bcst(self.pool.label(self.asm, &[value]))
    }

    /// Returns a broadcast operand with a constant in all lanes of 64 bits. It must be the last operand.
    pub(super) fn wide_constant(&mut self, value: u64) -> AsmMemoryOperand {
        qword_bcst(self.pool.label(self.asm, &[value as u32, (value >> 32) as u32]))
    }

    /// Returns a memory operand with a constant of 32 bits, without broadcast.
    pub(super) fn word(&mut self, value: u32) -> AsmMemoryOperand {
        dword_ptr(self.label_of(value))
    }

    /// Returns the label of a constant of 32 bits.
    pub(super) fn label_of(&mut self, value: u32) -> CodeLabel {
        self.pool.label(self.asm, &[value])
    }

    /// Returns a memory operand with a constant of sixteen words.
    pub(super) fn pattern(&mut self, word: impl Fn(u32) -> u32) -> AsmMemoryOperand {
        let words: [u32; 16] = std::array::from_fn(|lane| word(lane as u32));
        zmmword_ptr(self.pool.label(self.asm, &words))
    }
}
