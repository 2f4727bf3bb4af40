//! Where runs are left for the interpreter while values are still in registers.

use iced_x86::code_asm::{CodeAssembler, CodeLabel};

use crate::jit::departed::Held;

/// Where a run is left for the interpreter: what the frame lacks there.
pub(super) struct Departure {
    pub(super) label: CodeLabel,
    /// The step with which the interpreter goes on.
    pub(super) pc: u32,
    pub(super) held: Vec<Held>,
}

/// A departure of the step that is assembled, to which code may jump while registers hold what they held when
/// it was made.
#[derive(Clone, Copy)]
pub(super) struct Miss {
    pub(super) label: CodeLabel,
    /// Number of changes of registers in the step before.
    pub(super) changes: usize,
}

/// A jump under some condition.
pub(super) type Jump = fn(&mut CodeAssembler, CodeLabel) -> crate::jit::value::Emit;

/// Finds the label of a departure: that of the last one if nothing has changed since.
pub(super) fn label(
    all: &mut Vec<Departure>,
    asm: &mut CodeAssembler,
    (pc, held): (u32, Vec<Held>),
) -> CodeLabel {
    if let Some(last) = all.last().filter(|last| (last.pc, &last.held) == (pc, &held)) {
        return last.label;
    }
    let label = asm.create_label();
    all.push(Departure { label, pc, held });
    label
}
