//! Side exits while code is assembled: labels, and the values that registers hold there.

use iced_x86::code_asm::{CodeAssembler, CodeLabel};

use crate::jit::side_exit::LiveValue;

/// A side exit, and the values that the frame lacks at it.
pub(super) struct ExitSite {
    pub(super) label: CodeLabel,
    /// Index of the instruction at which the interpreter continues.
    pub(super) pc: u32,
    pub(super) live: Vec<LiveValue>,
}

/// A side exit of the current instruction. Code may jump to it while the registers hold the values that they
/// held when it was made.
#[derive(Clone, Copy)]
pub(super) struct Miss {
    pub(super) label: CodeLabel,
    /// Number of changes of registers in this instruction before the exit was made.
    pub(super) changes: usize,
}

/// Emits a conditional jump.
pub(super) type Jump = fn(&mut CodeAssembler, CodeLabel) -> crate::jit::value::Emit;

/// Returns the label of a side exit. Reuses the newest one if the same values are live.
pub(super) fn label(
    all: &mut Vec<ExitSite>,
    asm: &mut CodeAssembler,
    (pc, live): (u32, Vec<LiveValue>),
) -> CodeLabel {
    if let Some(last) = all.last().filter(|last| (last.pc, &last.live) == (pc, &live)) {
        return last.label;
    }
    let label = asm.create_label();
    all.push(ExitSite { label, pc, live });
    label
}
