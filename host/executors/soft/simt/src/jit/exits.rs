//! Where machine code goes: to the beginnings of pieces, and back to the interpreter.

use std::collections::HashMap;

use iced_x86::BlockEncoderOptions;
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
    /// Emits what a translator wants to have made of the running lanes, which are in `ecx`. It changes no
    /// register but
    /// `rcx`, `rdx`, `rsi` and `rdi`, and those of vectors.
    pub(super) masks: fn(&mut CodeAssembler) -> Emit,
}

/// Code that has been assembled, in bytes.
pub(super) struct Placed {
    pub(super) bytes: Vec<u8>,
    /// Bytes that must lie before it, so that its constants begin at cache lines.
    pub(super) before: usize,
    /// Where each step's piece begins: 0 where none does.
    pub(super) entries: Vec<u32>,
    /// Where the code begins that every run passes.
    pub(super) start: u32,
}

impl Targets {
    /// Assembles what has been emitted for so many steps. `constants`: the first of those that are whole
    /// vectors.
    pub(super) fn place(
        &self,
        asm: &mut CodeAssembler,
        constants: Option<CodeLabel>,
        start: CodeLabel,
        steps: usize,
    ) -> Emit<Placed> {
        let done = asm.assemble_options(0, BlockEncoderOptions::RETURN_NEW_INSTRUCTION_OFFSETS)?;
        let at = |label: &CodeLabel| done.label_ip(label).map(|ip| ip as usize);
        let before = constants.as_ref().map(at).transpose()?.map_or(0, |first| first.wrapping_neg() % 64);
        let mut entries = vec![0; steps];
        for (first, label) in &self.labels {
            entries[*first as usize] = at(label)? as u32;
        }
        let start = at(&start)? as u32;
        Ok(Placed { bytes: done.inner.code_buffer, before, entries, start })
    }

    pub(super) fn get(&self, first: u32) -> Option<CodeLabel> {
        self.labels.get(&first).copied()
    }
}
