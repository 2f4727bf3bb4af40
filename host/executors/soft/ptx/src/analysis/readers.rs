//! Readers of each register (def-use chains). Analyses use them to visit again only the instructions that a
//! new result affects.

use super::access::reads;
use crate::ir::{Kernel, Reg, Terminator};

/// For each register, the instructions that read it and the blocks whose terminators do. Blocks are numbered
/// after all instructions.
#[derive(Clone, Debug)]
pub struct Readers {
    /// Indexed by register: start of its readers in `list`.
    starts: Vec<u32>,
    list: Vec<u32>,
}

impl Readers {
    /// Collects the readers of all registers of a kernel.
    #[must_use]
    pub fn collect(kernel: &Kernel) -> Self {
        let mut starts = vec![0_u32; kernel.registers.len() + 1];
        let each = |visit: &mut dyn FnMut(Reg, u32)| {
            for (index, inst) in kernel.code.iter().enumerate() {
                reads(&inst.op, &mut |reg| visit(reg, index as u32));
            }
            for (index, block) in kernel.blocks.iter().enumerate() {
                if let Terminator::Branch { guard, .. } = block.end {
                    visit(guard.reg, (kernel.code.len() + index) as u32);
                }
            }
        };
        each(&mut |reg, _| starts[reg.0 as usize + 1] += 1);
        for index in 1..starts.len() {
            starts[index] += starts[index - 1];
        }
        let mut list = vec![0; starts.last().map_or(0, |&count| count as usize)];
        let mut next = starts.clone();
        each(&mut |reg, reader| {
            let slot = &mut next[reg.0 as usize];
            list[*slot as usize] = reader;
            *slot += 1;
        });
        Self { starts, list }
    }

    /// Returns the readers of a register, in the order of the text.
    #[must_use]
    pub fn get(&self, reg: Reg) -> &[u32] {
        &self.list[self.starts[reg.0 as usize] as usize..self.starts[reg.0 as usize + 1] as usize]
    }
}
