//! Blocks: their numbers, their ends, barriers.
//!
//! A barrier ends a block of the lowered code, so that a warp that waits there goes on at a block's start.

use vgpu_ptx::ir::{BlockId, Guard, Kernel, Op, Operand, Terminator};

use crate::block::{BarrierKind, BarrierStep};
use crate::machine::Step;
use crate::ops::control::{Arrive, Branch, Goto, Return, Trap};

use super::builder::{Builder, Lowered};

fn is_barrier(op: &Op) -> bool {
    matches!(op, Op::Bar { .. } | Op::BarArrive { .. } | Op::BarRed { .. })
}

/// The lowered block that each block begins, and how many edges lead to each block.
pub(super) fn number_blocks(kernel: &Kernel) -> Lowered<(Vec<u32>, Vec<u32>)> {
    if kernel.blocks.is_empty() {
        return Err("it has no code".into());
    }
    let mut numbers = Vec::with_capacity(kernel.blocks.len());
    let mut entries = vec![0u32; kernel.blocks.len()];
    // The entry is entered from outside.
    entries[0] = 1;
    let mut next = 0;
    for block in &kernel.blocks {
        numbers.push(next);
        let code =
            kernel.code.get(block.code.start as usize..block.code.end as usize).ok_or("no such code")?;
        next += 1 + code.iter().filter(|inst| is_barrier(&inst.op)).count() as u32;
        let targets = match block.end {
            Terminator::Goto(to) => [Some(to), None],
            Terminator::Branch { then, otherwise, .. } => [Some(then), Some(otherwise)],
            Terminator::Return | Terminator::Trap => [None, None],
        };
        for BlockId(to) in targets.into_iter().flatten() {
            *entries.get_mut(to as usize).ok_or_else(|| format!("no block {to}"))? += 1;
        }
    }
    Ok((numbers, entries))
}

impl Builder<'_> {
    pub(super) fn begin_block(&mut self, index: usize) {
        debug_assert_eq!(self.blocks.len(), self.block_numbers[index] as usize);
        self.block = index;
        self.begin_agreements(index);
        self.blocks.push(self.steps.len() as u32);
        self.line_start = self.steps.len().cast_signed() - self.reach[index].cast_signed();
        self.look();
    }

    fn target_block(&self, id: BlockId) -> Lowered<u32> {
        self.block_numbers.get(id.0 as usize).copied().ok_or_else(|| format!("no block {}", id.0))
    }

    /// A step that goes to blocks: linked when all blocks have steps.
    fn jump(&mut self, step: Step) {
        self.jumps.push(self.steps.len());
        self.push(step);
    }

    /// Carries the length of the straight line on to the blocks ahead that may come next. Branches back count by themselves.
    fn extend_line(&mut self, index: usize) {
        let length = self.line_length() + 1;
        let next = match self.kernel.blocks[index].end {
            Terminator::Goto(to) => [Some(to), None],
            Terminator::Branch { then, otherwise, .. } => [Some(then), Some(otherwise)],
            Terminator::Return | Terminator::Trap => [None, None],
        };
        for BlockId(to) in next.into_iter().flatten().filter(|to| to.0 as usize > index) {
            let reach = &mut self.reach[to as usize];
            *reach = length.max(*reach);
        }
    }

    /// The end of block `index` of the kernel.
    pub(super) fn terminator(&mut self, index: usize) -> Lowered {
        self.extend_line(index);
        let here = self.blocks.len() as u32 - 1;
        let (kernel, next) = (self.kernel, index + 1);
        match kernel.blocks[index].end {
            Terminator::Goto(to) => {
                // Nobody else comes there: no lane can be pending.
                if to.0 as usize == next && self.entries[next] == 1 {
                    return Ok(());
                }
                let target = self.target_block(to)?;
                let mut step =
                    if target <= here { self.common::<Goto<true>>() } else { self.common::<Goto<false>>() };
                step.x = target;
                step.y = target;
                self.jump(step);
            }
            Terminator::Branch { guard, then, otherwise, .. } => self.branch(guard, then, otherwise, here)?,
            Terminator::Return => {
                let step = self.common::<Return>();
                self.push(step);
            }
            Terminator::Trap => {
                let step = self.common::<Trap>();
                self.push(step);
            }
        }
        Ok(())
    }

    fn branch(&mut self, guard: Guard, then: BlockId, otherwise: BlockId, here: u32) -> Lowered {
        let (place, _) = self.guard(guard)?;
        let (then, otherwise) = (self.target_block(then)?, self.target_block(otherwise)?);
        let back = then <= here || otherwise <= here;
        let mut step = match (guard.negated, back) {
            (true, true) => self.common::<Branch<true, true>>(),
            (true, false) => self.common::<Branch<true, false>>(),
            (false, true) => self.common::<Branch<false, true>>(),
            (false, false) => self.common::<Branch<false, false>>(),
        };
        (step.a, step.x, step.y) = (place.slot(), then, otherwise);
        self.jump(step);
        Ok(())
    }

    /// Fills in the first steps of the blocks that steps go to.
    pub(super) fn link(&mut self) {
        for &index in &self.jumps {
            let step = &mut self.steps[index];
            let first = |block: u32| u64::from(self.blocks[block as usize]);
            step.imm = first(step.x) | first(step.y) << 32;
        }
    }

    /// `bar` and its kin.
    pub(super) fn barrier(&mut self, op: &Op) -> Lowered {
        let (number, threads, kind) = match op {
            Op::Bar { barrier, threads } => (barrier, threads.as_ref(), BarrierKind::Sync),
            Op::BarArrive { barrier, threads } => (barrier, Some(threads), BarrierKind::Arrive),
            Op::BarRed { op, barrier, threads, dst, p } => {
                let (p, xor) = self.guard(*p)?;
                let bytes = if *op == vgpu_ptx::ir::Reduce::Popc { 4 } else { 1 };
                let dst = self.register(*dst, bytes)?;
                (barrier, threads.as_ref(), BarrierKind::Reduce { op: *op, p: p.slot(), xor, dst })
            }
            _ => return Err("not a barrier".into()),
        };
        let number = self.source(number, 4)?;
        let threads = threads.map(|threads: &Operand| self.source(threads, 4)).transpose()?;
        let agreement = self.take_agreement()?;
        self.tables.barriers.push(BarrierStep { number, threads, kind, agreement });
        let mut step = self.common::<Arrive>();
        step.x = self.blocks.len() as u32;
        step.y = self.tables.barriers.len() as u32 - 1;
        self.push(step);
        self.blocks.push(self.steps.len() as u32);
        Ok(())
    }
}
