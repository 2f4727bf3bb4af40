//! Where machine code goes: to the beginnings of pieces, and back to the interpreter.

use std::collections::HashMap;

use iced_x86::code_asm::{CodeAssembler, CodeLabel, eax, qword_ptr, r12};

use super::value::Emit;
use crate::machine::Context;

/// The ends of machine code: the step with which the interpreter goes on, and the fuel that is given back.
#[derive(Default)]
pub(super) struct Exits {
    labels: HashMap<(u32, i32), CodeLabel>,
}

impl Exits {
    pub(super) fn at(&mut self, asm: &mut CodeAssembler, pc: u32) -> CodeLabel {
        self.behind(asm, (pc, 0))
    }

    /// An end at a step that has counted the instructions of its loop already.
    pub(super) fn behind(&mut self, asm: &mut CodeAssembler, end: (u32, i32)) -> CodeLabel {
        *self.labels.entry(end).or_insert_with(|| asm.create_label())
    }

    /// Emits all ends.
    pub(super) fn emit(&mut self, asm: &mut CodeAssembler, leave: CodeLabel) -> Emit {
        for ((pc, refund), label) in &mut self.labels {
            asm.set_label(label)?;
            if *refund != 0 {
                asm.add(qword_ptr(r12 + Context::FUEL), *refund)?;
            }
            asm.mov(eax, *pc)?;
            asm.jmp(leave)?;
        }
        Ok(())
    }
}

/// Where pieces begin.
pub(super) struct Targets {
    pub(super) labels: HashMap<u32, CodeLabel>,
    /// The choice of the block that runs next.
    pub(super) schedule: CodeLabel,
}

impl Targets {
    pub(super) fn get(&self, first: u32) -> Option<CodeLabel> {
        self.labels.get(&first).copied()
    }
}
