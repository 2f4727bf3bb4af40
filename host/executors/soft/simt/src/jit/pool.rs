//! Constants that lie behind the code.

use std::collections::HashMap;

use iced_x86::code_asm::{CodeAssembler, CodeLabel};

use super::value::Emit;

/// Constants that lie behind the code, by their words.
#[derive(Default)]
pub(super) struct Pool {
    /// Whether a step needed more registers than there are, or the ways through it do not agree on what
    /// registers hold: the code is not to be used.
    pub(super) lacking: bool,
    constants: HashMap<Vec<u32>, CodeLabel>,
}

impl Pool {
    /// The label of a constant.
    pub(super) fn label(&mut self, asm: &mut CodeAssembler, words: &[u32]) -> CodeLabel {
        *self.constants.entry(words.to_vec()).or_insert_with(|| asm.create_label())
    }

    /// Writes the constants. Returns the label of the first that is a whole vector: all of these lie behind each
    /// other, and should begin at cache lines.
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
