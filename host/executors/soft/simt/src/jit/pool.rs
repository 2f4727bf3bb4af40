//! Pool of the constants that the code uses, which are placed after the code.

use std::collections::HashMap;

use iced_x86::code_asm::{CodeAssembler, CodeLabel};

use super::value::Emit;

/// Labels of the constants that the code uses, by their words.
#[derive(Default)]
pub(super) struct ConstantPool {
    /// Whether the code must not be used: an instruction needed more registers than there are, or its paths
    /// disagree on the contents of registers.
    pub(super) lacking: bool,
    constants: HashMap<Vec<u32>, CodeLabel>,
}

impl ConstantPool {
    /// Returns the label of a constant. A new constant is added to the pool.
    pub(super) fn label(&mut self, asm: &mut CodeAssembler, words: &[u32]) -> CodeLabel {
        *self.constants.entry(words.to_vec()).or_insert_with(|| asm.create_label())
    }

    /// Emits the constants, the longest first. Returns the label of the first vector, which should be aligned
    /// to a cache line.
    pub(super) fn emit(&mut self, asm: &mut CodeAssembler) -> Emit<Option<CodeLabel>> {
        let mut constants: Vec<_> = self.constants.iter_mut().collect();
        constants.sort_unstable_by_key(|(words, _)| std::cmp::Reverse(words.len()));
        for (words, label) in &mut constants {
            asm.set_label(label)?;
            asm.dd(words)?;
        }
        Ok(constants.first().map(|(_, label)| **label))
    }
}
