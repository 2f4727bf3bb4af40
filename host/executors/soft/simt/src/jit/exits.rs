//! Targets of jumps: the starts of superblocks, and the exits to the interpreter.

use std::collections::HashMap;

use iced_x86::BlockEncoderOptions;
use iced_x86::code_asm::{CodeAssembler, CodeLabel, eax, qword_ptr, r12};

use super::value::Emit;
use crate::machine::Context;

/// Exits between superblocks, by the instruction at which the interpreter continues and the fuel that is
/// refunded.
#[derive(Default)]
pub(super) struct Exits {
    labels: HashMap<(u32, i32), CodeLabel>,
}

impl Exits {
    pub(super) fn at(&mut self, asm: &mut CodeAssembler, pc: u32) -> CodeLabel {
        self.behind(asm, (pc, 0))
    }

    /// Returns an exit at an instruction whose loop has already been charged, which refunds the fuel.
    pub(super) fn behind(&mut self, asm: &mut CodeAssembler, end: (u32, i32)) -> CodeLabel {
        *self.labels.entry(end).or_insert_with(|| asm.create_label())
    }

    /// Emits the code of all exits.
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

/// Start labels of superblocks, and the scheduler that jumps to them.
pub(super) struct Targets {
    pub(super) labels: HashMap<u32, CodeLabel>,
    /// Label of the code that selects the next basic block to run.
    pub(super) schedule: CodeLabel,
    /// Number of basic blocks. The masks of the pending lanes are followed by that of the lanes that have
    /// run.
    pub(super) blocks: usize,
    /// Function that emits the translator's preparation of new active lanes, which are in `ecx`. The code may
    /// change only `rcx`, `rdx`, `rsi`, `rdi` and vector registers.
    pub(super) masks: fn(&mut CodeAssembler) -> Emit,
}

/// Assembled code, and offsets in it in bytes.
pub(super) struct Placed {
    pub(super) bytes: Vec<u8>,
    /// Number of bytes to leave before the code, so that its vector constants are aligned to cache lines.
    pub(super) before: usize,
    /// Offset of the superblock that starts at each instruction; 0 if none starts there.
    pub(super) entries: Vec<u32>,
    /// Offset of the entry code.
    pub(super) start: u32,
}

impl Targets {
    /// Assembles all emitted code of a program with `steps` instructions. `constants` is the label of the
    /// first vector constant.
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
