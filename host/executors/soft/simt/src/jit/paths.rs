//! Checks that an instruction changes the contents of registers only in code that every path through it
//! executes.
//!
//! The register cache describes the registers at the point that is being assembled. If a jump skips
//! instructions, both paths must reach its target with the same registers: a value that was stored, made
//! canonical, loaded or bound on one path only is wrong on the other. At a side exit, the live values must
//! still be in the registers that were recorded for it.
//!
//! This check detects violations from the emitted instructions. Code with a violation is not used.

use iced_x86::code_asm::CodeAssembler;
use iced_x86::{Instruction, OpKind};

/// Changes of register contents within the code of the current instruction.
#[derive(Debug, Default)]
pub(super) struct Paths {
    /// Number of emitted machine instructions before the current instruction.
    first: usize,
    /// Position of each change, as a number of machine instructions since the start of the current
    /// instruction.
    changes: Vec<usize>,
    /// Number of jumps to side exits within the current instruction.
    leaving: usize,
}

impl Paths {
    /// Starts the check of a new instruction.
    pub(super) fn begin(&mut self, asm: &CodeAssembler) {
        self.first = asm.instructions().len();
        self.changes.clear();
        self.leaving = 0;
    }

    /// Records that a register was allocated, stored, made canonical or bound.
    pub(super) fn change(&mut self, asm: &CodeAssembler) {
        self.changes.push(asm.instructions().len() - self.first);
    }

    /// Returns the number of changes in the current instruction so far.
    pub(super) fn changes(&self) -> usize {
        self.changes.len()
    }

    /// Records a jump to a side exit.
    pub(super) fn leave(&mut self) {
        self.leaving += 1;
    }

    /// Returns whether all paths agree on the contents of registers: no change lies between a jump and its
    /// target, and all other jumps go to side exits. A change just before a label is not distinguished from
    /// one just after it, unless the label has an instruction of its own (`zero_bytes`).
    pub(super) fn agree(&self, asm: &CodeAssembler) -> bool {
        if self.changes.is_empty() {
            return true;
        }
        let code = &asm.instructions()[self.first..];
        let mut leaving = 0;
        for (at, jump) in code.iter().enumerate().filter(|(_, instruction)| is_jump(instruction)) {
            // Until the code is assembled, a label is the address of its instruction.
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

    /// Position of a change in test code with a forward jump and a loop.
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
