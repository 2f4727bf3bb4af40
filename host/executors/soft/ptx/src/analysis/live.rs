//! Liveness of registers: a backward dataflow analysis over the blocks, until a fixed point is reached.

use std::sync::Arc;

use fixedbitset::FixedBitSet;

use super::access::{reads, writes};
use super::sets::{Members, RegSet};
use crate::effort::{Effort, Spent};
use crate::ir::{BlockId, Kernel, Reg, Terminator};

/// Registers that are live at the starts and ends of blocks, and registers that blocks write.
pub(crate) struct Live {
    /// Registers that are live across a block's start somewhere.
    pub(super) members: Arc<Members>,
    /// Indexed by block: registers that are live at its start.
    pub starts: Vec<RegSet>,
    /// Indexed by block: registers that are live at its end.
    pub ends: Vec<RegSet>,
    /// Indexed by block: registers of `members` that it writes.
    pub written: Vec<RegSet>,
}

impl Live {
    /// Computes the live registers of all blocks of a kernel.
    pub fn compute(kernel: &Kernel, effort: &Effort) -> Result<Self, Spent> {
        effort.spend(kernel.code.len() as u64)?;
        // Registers that each block reads before it writes them. No other register can be live across the
        // start of a block.
        let mut exposed = vec![Vec::new(); kernel.blocks.len()];
        let mut members = FixedBitSet::with_capacity(kernel.registers.len());
        // Indexed by register: the last block that wrote or noted it, so that a block lists each register at
        // most once.
        let mut seen = vec![u32::MAX; kernel.registers.len()];
        for (index, block) in kernel.blocks.iter().enumerate() {
            let index = index as u32;
            let mut read = |reg: Reg, seen: &mut [u32]| {
                if seen[reg.0 as usize] != index {
                    seen[reg.0 as usize] = index;
                    exposed[index as usize].push(reg);
                    members.insert(reg.0 as usize);
                }
            };
            for inst in &kernel.code[block.code.start as usize..block.code.end as usize] {
                reads(&inst.op, &mut |reg| read(reg, &mut seen));
                writes(&inst.op, &mut |reg| seen[reg.0 as usize] = index);
            }
            if let Terminator::Branch { guard, .. } = block.end {
                read(guard.reg, &mut seen);
            }
        }
        let members = Arc::new(Members::new(&members));
        // Four sets for each block: the three here, and one of waiting registers in the analysis of
        // divergence.
        effort.hold(4 * kernel.blocks.len() as u64 * members.list.len() as u64 / 8)?;
        let empty = RegSet::new(Arc::clone(&members));
        let mut live = Self {
            members: Arc::clone(&members),
            starts: vec![empty.clone(); kernel.blocks.len()],
            ends: vec![empty.clone(); kernel.blocks.len()],
            written: vec![empty; kernel.blocks.len()],
        };
        for (index, block) in kernel.blocks.iter().enumerate() {
            for inst in &kernel.code[block.code.start as usize..block.code.end as usize] {
                writes(&inst.op, &mut |reg| {
                    if let Some(place) = members.place(reg) {
                        live.written[index].bits.insert(place);
                    }
                });
            }
            for &reg in &exposed[index] {
                live.starts[index].bits.extend(members.place(reg));
            }
        }
        live.propagate(kernel, effort)?;
        Ok(live)
    }

    /// Propagates live registers backwards over the predecessors, starting from those that blocks read before
    /// they write them.
    fn propagate(&mut self, kernel: &Kernel, effort: &Effort) -> Result<(), Spent> {
        let count = kernel.blocks.len();
        let mut before = vec![Vec::new(); count];
        for (index, block) in kernel.blocks.iter().enumerate() {
            for next in successors(&block.end) {
                before[next.0 as usize].push(index);
            }
        }
        let mut queued = vec![true; count];
        let mut queue: Vec<usize> = (0..count).collect();
        let mut carried = FixedBitSet::with_capacity(self.members.list.len());
        while let Some(index) = queue.pop() {
            queued[index] = false;
            effort.spend(before[index].len() as u64 * self.members.words())?;
            for &previous in &before[index] {
                self.ends[previous].bits.union_with(&self.starts[index].bits);
                carried.clone_from(&self.ends[previous].bits);
                carried.difference_with(&self.written[previous].bits);
                if !carried.is_subset(&self.starts[previous].bits) {
                    self.starts[previous].bits.union_with(&carried);
                    if !std::mem::replace(&mut queued[previous], true) {
                        queue.push(previous);
                    }
                }
            }
        }
        Ok(())
    }
}

/// Returns the blocks that a terminator may lead to.
pub(super) fn successors(end: &Terminator) -> impl Iterator<Item = BlockId> {
    let pair = match *end {
        Terminator::Goto(next) => [Some(next), None],
        Terminator::Branch { then, otherwise, .. } => [Some(then), (otherwise != then).then_some(otherwise)],
        Terminator::Return | Terminator::Trap | Terminator::StackOverflow | Terminator::BadCall => {
            [None, None]
        }
    };
    pair.into_iter().flatten()
}
