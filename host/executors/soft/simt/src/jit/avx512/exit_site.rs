//! Side exits during assembling: labels, and the values that registers hold at each exit.

use iced_x86::code_asm::{CodeAssembler, CodeLabel};

use crate::jit::side_exit::LiveValue;

/// A side exit, and the register values there that the frame does not have.
pub(super) struct ExitSite {
    pub(super) label: CodeLabel,
    /// Index of the instruction at which the interpreter continues.
    pub(super) pc: u32,
    pub(super) live: Vec<LiveValue>,
}

/// A side exit of the current instruction. Code may jump to it while the registers still hold the values that
/// they held when the exit was created.
#[derive(Clone, Copy)]
pub(super) struct Miss {
    pub(super) label: CodeLabel,
    /// Number of register changes in this instruction before the exit was created.
    pub(super) changes: usize,
}

/// Function that emits a conditional jump to a label.
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
