//! Instructions that need not be fast, executed by a function that is called for each active lane with the
//! bits of its operands.

use crate::machine::{Env, Inst, Isa, LANES, Operation, RareOperand, Warp};

fn read(warp: &Warp, operand: RareOperand, lane: usize) -> u64 {
    match (operand.bytes, operand.scalar) {
        (1, _) => u64::from(warp.frame.get::<u32>(operand.at) >> lane & 1),
        (8, true) => warp.frame.get(operand.at),
        (8, false) => warp.frame.vector::<u64>(operand.at)[lane],
        (_, true) => u64::from(warp.frame.get::<u32>(operand.at)),
        (_, false) => u64::from(warp.frame.vector::<u32>(operand.at)[lane]),
    }
}

fn write(warp: &mut Warp, operand: RareOperand, lane: usize, value: u64) {
    match (operand.bytes, operand.scalar) {
        (1, true) => warp.frame.set(operand.at, (value as u32 & 1).wrapping_neg()),
        (1, false) => {
            let others = warp.frame.get::<u32>(operand.at) & !(1 << lane);
            warp.frame.set(operand.at, others | (value as u32 & 1) << lane);
        }
        (8, true) => warp.frame.set(operand.at, value),
        (8, false) => warp.frame.vector_mut::<u64>(operand.at)[lane] = value,
        (2, true) => warp.frame.set(operand.at, value as u32 & 0xffff),
        (2, false) => warp.frame.vector_mut::<u32>(operand.at)[lane] = value as u32 & 0xffff,
        (_, true) => warp.frame.set(operand.at, value as u32),
        (_, false) => warp.frame.vector_mut::<u32>(operand.at)[lane] = value as u32,
    }
}

/// Calls the function of the [`crate::machine::RareOperands`] with index `x` for each active lane, or once if
/// the result is a scalar.
pub(crate) struct Rare;

impl Operation for Rare {
    #[inline(always)]
    fn execute<I: Isa>(warp: &mut Warp, env: &mut Env<'_>, inst: &Inst, pc: u32) -> u32 {
        let rare = &env.tables.rare[inst.x as usize];
        let mut rest = if rare.dst.scalar { warp.mask & warp.mask.wrapping_neg() } else { warp.mask };
        while rest != 0 {
            let lane = rest.trailing_zeros() as usize % LANES;
            rest &= rest - 1;
            let mut values = [0; 4];
            for (value, &source) in values.iter_mut().zip(&rare.sources) {
                *value = read(warp, source, lane);
            }
            let result = (rare.function)(values);
            write(warp, rare.dst, lane, result);
        }
        pc + 1
    }
}
