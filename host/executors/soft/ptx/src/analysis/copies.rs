//! Copies to be coalesced with their source: nvcc moves values between registers of one width to change their
//! type.
//!
//! A register is a copy if its only definition is a move from another register of its class, all its reads
//! follow in the same block, and the other register is not written in the rest of the block. Then both have
//! the same value for each lane wherever the copy is read, and can share a slot: the lanes that run a block
//! are the same from its start to its end.

use crate::ir::{Class, Kernel, Op, Operand, Reg};

use super::access::writes;
use super::facts::Analysis;
use super::sets::RegSet;

/// Returns, indexed by register, the register that it copies, or itself if it is no copy. An original is
/// never a copy.
pub(super) fn copies(kernel: &Kernel, analysis: &Analysis) -> Vec<Reg> {
    let mut of: Vec<Reg> = (0..kernel.registers.len() as u32).map(Reg).collect();
    let mut definitions = vec![0u32; kernel.registers.len()];
    for inst in &kernel.code {
        writes(&inst.op, &mut |reg| definitions[reg.0 as usize] += 1);
    }
    // Registers that a block reads before it writes them.
    let mut crosses = vec![false; kernel.registers.len()];
    for reg in analysis.live_in.iter().flat_map(RegSet::iter) {
        crosses[reg.0 as usize] = true;
    }
    // Indexed by register: the last instruction, counted from 1 in the order of the text, that writes it in
    // the current block or an earlier one. 0 if none does.
    let mut last_write = vec![0u32; kernel.registers.len()];
    for range in kernel.blocks.iter().map(|block| block.code.clone()) {
        for index in range.clone() {
            writes(&kernel.code[index as usize].op, &mut |reg| last_write[reg.0 as usize] = index + 1);
        }
        for index in range {
            let Op::Mov { dst, src: Operand::Reg(src), .. } = kernel.code[index as usize].op else {
                continue;
            };
            let src = of[src.0 as usize];
            let class = kernel.registers[dst.0 as usize];
            let same = class == kernel.registers[src.0 as usize]
                && class != Class::Pred
                && analysis.uniform.contains(dst) == analysis.uniform.contains(src);
            if dst != src
                && same
                && !crosses[dst.0 as usize]
                && definitions[dst.0 as usize] == 1
                && last_write[src.0 as usize] <= index
            {
                of[dst.0 as usize] = src;
            }
        }
    }
    of
}
