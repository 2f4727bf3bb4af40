//! The check that a step changes what registers hold only where all ways through its code pass.
//!
//! A cache of registers knows what each of them holds at the place that is being assembled. Where a jump
//! skips instructions, both ways must arrive at its target with the same registers: a value that was written
//! to the frame, made canonical, loaded or bound on one of the two ways alone is wrong on the other. And
//! where a jump leaves the run, what the frame lacks must still lie in the registers that were noted for it.
//!
//! The instructions of a step show where that is not so. Its code is not used then.

use iced_x86::code_asm::CodeAssembler;
use iced_x86::{Instruction, OpKind};

/// What was changed while a step was assembled, and where.
#[derive(Debug, Default)]
pub(super) struct Paths {
    /// Number of instructions before the step.
    first: usize,
    /// Number of the step's instructions before each change.
    changes: Vec<usize>,
    /// Number of its jumps to where the run is left.
    leaving: usize,
}

impl Paths {
    /// Begins a step.
    pub(super) fn begin(&mut self, asm: &CodeAssembler) {
        self.first = asm.instructions().len();
        self.changes.clear();
        self.leaving = 0;
    }

    /// Notes that a register was taken, written, made canonical or bound.
    pub(super) fn change(&mut self, asm: &CodeAssembler) {
        self.changes.push(asm.instructions().len() - self.first);
    }

    /// Number of changes of the step so far.
    pub(super) fn changes(&self) -> usize {
        self.changes.len()
    }

    /// Notes a jump to where the run is left.
    pub(super) fn leave(&mut self) {
        self.leaving += 1;
    }

    /// Whether all ways through the step's code agree on what registers hold: no change lies between a jump
    /// and its target, and all other jumps leave. A change just before the target is not told from one just
    /// behind it, unless the label has an instruction of its own (`zero_bytes`).
    pub(super) fn agree(&self, asm: &CodeAssembler) -> bool {
        if self.changes.is_empty() {
            return true;
        }
        let code = &asm.instructions()[self.first..];
        let mut leaving = 0;
        for (at, jump) in code.iter().enumerate().filter(|(_, instruction)| is_jump(instruction)) {
            // A label is the address of its instruction until all is put together.
            let Some(to) = code.iter().position(|other| other.ip() == jump.near_branch_target()) else {
                leaving += 1;
                continue;
            };
            let between = if at < to { at + 1..=to } else { to..=at };
            if self.changes.iter().any(|change| between.contains(change)) {
                return false;
            }
        }
        leaving == self.leaving
    }
}

fn is_jump(instruction: &Instruction) -> bool {
    instruction.op_count() > 0 && instruction.op0_kind() == OpKind::NearBranch64
}

#[cfg(test)]
mod tests {
    use iced_x86::code_asm::{eax, ecx};

    use super::*;
    use crate::jit::value::Emit;

    /// Where a change is made in a step that jumps over an instruction and has a loop behind it.
    #[derive(Clone, Copy, PartialEq)]
    enum ChangeAt {
        Before,
        Skipped,
        Between,
        Looped,
        Behind,
    }

    fn agrees(place: ChangeAt, jumps_out: bool, leaves: usize) -> Emit<bool> {
        let mut asm = CodeAssembler::new(64)?;
        let (mut over, mut again, out) = (asm.create_label(), asm.create_label(), asm.create_label());
        asm.mov(eax, 0)?;
        let mut paths = Paths::default();
        paths.begin(&asm);
        let change = |paths: &mut Paths, asm: &mut CodeAssembler, here: ChangeAt| -> Emit {
            if here != place {
                return Ok(());
            }
            paths.change(asm);
            asm.mov(ecx, 1)
        };
        change(&mut paths, &mut asm, ChangeAt::Before)?;
        asm.je(over)?;
        change(&mut paths, &mut asm, ChangeAt::Skipped)?;
        asm.mov(eax, 1)?;
        asm.set_label(&mut over)?;
        asm.zero_bytes()?;
        change(&mut paths, &mut asm, ChangeAt::Between)?;
        asm.mov(eax, 2)?;
        asm.set_label(&mut again)?;
        asm.mov(eax, 3)?;
        change(&mut paths, &mut asm, ChangeAt::Looped)?;
        asm.jne(again)?;
        if jumps_out {
            asm.jb(out)?;
        }
        for _ in 0..leaves {
            paths.leave();
        }
        change(&mut paths, &mut asm, ChangeAt::Behind)?;
        Ok(paths.agree(&asm))
    }

    #[test]
    fn changes_lie_where_all_ways_pass() {
        for (place, good) in [
            (ChangeAt::Before, true),
            (ChangeAt::Skipped, false),
            (ChangeAt::Between, true),
            (ChangeAt::Looped, false),
            (ChangeAt::Behind, true),
        ] {
            assert_eq!(agrees(place, false, 0).expect("code"), good);
            assert_eq!(agrees(place, true, 1).expect("code"), good);
        }
    }

    #[test]
    fn jumps_that_leave_are_known() {
        assert!(!agrees(ChangeAt::Behind, true, 0).expect("code"));
        assert!(!agrees(ChangeAt::Before, false, 1).expect("code"));
    }
}
