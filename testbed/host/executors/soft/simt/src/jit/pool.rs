//! Constants that lie behind the code.

use std::collections::HashMap;

use iced_x86::code_asm::{CodeAssembler, CodeLabel};

use super::value::Emit;

/// Constants that lie behind the code, by their words.
#[derive(Default)]
pub(super) struct Pool {
    /// Whether a step needed more registers than there are: the code is not to be used.
    pub(super) lacking: bool,
    constants: HashMap<Vec<u32>, CodeLabel>,
}

impl Pool {
    /// The label of a constant.
    pub(super) fn label(&mut self, asm: &mut CodeAssembler, words: &[u32]) -> CodeLabel {
        *self.constants.entry(words.to_vec()).or_insert_with(|| asm.create_label())
    }

    /// Writes the constants.
    pub(super) fn emit(&mut self, asm: &mut CodeAssembler) -> Emit {
        for (pattern, label) in &mut self.constants {
            asm.set_label(label)?;
            asm.dd(pattern)?;
        }
        Ok(())
    }
}
