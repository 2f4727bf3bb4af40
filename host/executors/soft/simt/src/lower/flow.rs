//! Lowers control flow: the starts and ends of blocks, and barriers.

use vgpu_ptx::ir::{BlockId, Guard, Op, Operand, Reduce, Terminator};

use crate::machine::{BarrierKind, BarrierOperands, Form, Inst, Opcode, Slot, set};

use super::blocks::successors;
use super::builder::Builder;
use super::error::Lowered;

impl Builder<'_> {
    /// Starts lowering block `index` of the kernel: records its first instruction, and polls if due.
    pub(super) fn begin_block(&mut self, index: usize) {
        debug_assert_eq!(self.blocks.len(), self.block_numbers[index] as usize);
        self.block = index;
        self.begin_agreements(index);
        self.blocks.push(self.insts.len() as u32);
        self.line_start = self.insts.len().cast_signed() - self.reach[index].cast_signed();
        self.poll_if_due();
    }

    fn target_block(&self, id: BlockId) -> Lowered<u32> {
        self.block_numbers.get(id.0 as usize).copied().ok_or_else(|| format!("no block {}", id.0))
    }

    /// Emits a branch to other blocks. Its targets are filled in when all blocks have been lowered.
    fn jump(&mut self, inst: Inst) {
        self.jumps.push(self.insts.len());
        self.push(inst);
    }

    /// Propagates the length of the straight line to the later blocks that may run next. Backward branches
    /// poll in each iteration of their loop.
    fn extend_line(&mut self, index: usize) {
        let length = self.line_length() + 1;
        let kernel = self.kernel;
        for BlockId(to) in successors(&kernel.blocks[index].end).filter(|to| to.0 as usize > index) {
            let reach = &mut self.reach[to as usize];
            *reach = length.max(*reach);
        }
    }

    /// Lowers the terminator of block `index` of the kernel.
    pub(super) fn terminator(&mut self, index: usize) -> Lowered {
        self.extend_line(index);
        let here = self.blocks.len() as u32 - 1;
        let (kernel, next) = (self.kernel, index + 1);
        self.end_turn(index);
        match kernel.blocks[index].end {
            Terminator::Goto(to) => {
                // No other edge leads there, so no lane can be pending, and the blocks are one straight line.
                if to.0 as usize == next && self.entries[next] == 1 {
                    return Ok(());
                }
                let target = self.target_block(to)?;
                let mut inst = self.inst(if target <= here { Opcode::GotoBack } else { Opcode::Goto });
                inst.x = target;
                inst.y = target;
                self.jump(inst);
            }
            Terminator::Branch { guard, then, otherwise, .. } => self.branch(guard, then, otherwise, here)?,
            Terminator::Return => self.push(self.inst(Opcode::Return)),
            Terminator::Trap => self.push(self.inst(Opcode::Trap)),
            Terminator::StackOverflow => self.push(self.inst(Opcode::StackOverflow)),
            Terminator::BadCall => self.push(self.inst(Opcode::BadCall)),
        }
        Ok(())
    }

    /// Records what lanes must agree on to merge at a branch back, where turns end when the fuel is used up.
    /// In a loop that can observe other lanes, also emits the end of an iteration.
    fn end_turn(&mut self, index: usize) {
        if !self.kernel.independent_lanes {
            return;
        }
        let first = successors(&self.kernel.blocks[index].end).map(|BlockId(to)| to as usize).min();
        let Some(first) = first.filter(|&first| first <= index) else { return };
        if self.observing[first] < self.observing[index + 1] {
            self.push(self.inst(Opcode::Turn));
        }
        self.agree_at_end(index);
    }

    /// Ends the current lowered block, and starts one whose lanes execute an instruction in groups: those
    /// that have the same member mask together. The mask of each lane is in `masks`. With `joint`, groups may
    /// run at once. Returns the slot of the group's mask.
    pub(super) fn begin_group(&mut self, masks: Slot, joint: bool) -> Slot {
        self.next_block();
        let mut inst = self.inst(if joint { Opcode::GroupIfApart } else { Opcode::Group });
        (inst.a, inst.x) = (masks, self.blocks.len() as u32 - 1);
        self.grouped = true;
        self.push_scalar(inst)
    }

    /// Ends the block of [`Self::begin_group`], if there is one. The groups go on together.
    pub(super) fn end_group(&mut self) {
        if std::mem::take(&mut self.grouped) {
            self.next_block();
        }
    }

    /// Ends the current lowered block with a branch to a new one behind it.
    fn next_block(&mut self) {
        let mut inst = self.inst(Opcode::Goto);
        (inst.x, inst.y) = (self.blocks.len() as u32, self.blocks.len() as u32);
        self.jump(inst);
        self.blocks.push(self.insts.len() as u32);
    }

    fn branch(&mut self, guard: Guard, then: BlockId, otherwise: BlockId, here: u32) -> Lowered {
        let (place, inverted) = self.guard(guard)?;
        let (then, otherwise) = (self.target_block(then)?, self.target_block(otherwise)?);
        let back = then <= here || otherwise <= here;
        let opcode = if back { Opcode::BranchBack } else { Opcode::Branch };
        let mut inst = self.inst_of(opcode, Form::default().invert(set::A, inverted))?;
        (inst.a, inst.x, inst.y) = (place.slot(), then, otherwise);
        self.jump(inst);
        Ok(())
    }

    /// Fills in the targets of all branches: the first instructions of their blocks.
    pub(super) fn link(&mut self) {
        for &index in &self.jumps {
            let inst = &mut self.insts[index];
            let first = |block: u32| u64::from(self.blocks[block as usize]);
            inst.imm = first(inst.x) | first(inst.y) << 32;
        }
    }

    /// Lowers barrier instructions, each of which ends a lowered block.
    pub(super) fn barrier(&mut self, op: &Op) -> Lowered {
        let (number, threads, kind) = match op {
            Op::Bar { barrier, threads } => (barrier, threads.as_ref(), BarrierKind::Sync),
            Op::BarArrive { barrier, threads } => (barrier, Some(threads), BarrierKind::Arrive),
            Op::BarRed { op, barrier, threads, dst, p } => {
                let (p, inverted) = self.guard(*p)?;
                let xor = if inverted { u32::MAX } else { 0 };
                let bytes = if *op == Reduce::Popc { 4 } else { 1 };
                let dst = self.register(*dst, bytes)?;
                (barrier, threads.as_ref(), BarrierKind::Reduce { op: *op, p: p.slot(), xor, dst })
            }
            _ => return Err("not a barrier".into()),
        };
        let number = self.source(number, 4)?;
        let threads = threads.map(|threads: &Operand| self.source(threads, 4)).transpose()?;
        let agreement = self.take_agreement()?;
        self.tables.barriers.push(BarrierOperands { number, threads, kind, agreement });
        let mut inst = self.inst(Opcode::Arrive);
        inst.x = self.blocks.len() as u32;
        inst.y = self.tables.barriers.len() as u32 - 1;
        self.push(inst);
        self.blocks.push(self.insts.len() as u32);
        Ok(())
    }
}
