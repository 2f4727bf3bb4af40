//! Finds the registers that never hold a subnormal number, which `.ftz` need not flush again: a dataflow
//! analysis that starts with all registers and removes those that may.

use vgpu_ptx::analysis::{Readers, writes};
use vgpu_ptx::ir::{Binary, Inst, Kernel, Op, Operand, Reg, Ty, Unary};
use vgpu_ptx::{Effort, Spent};

/// Returns, for each register, whether none of its definitions makes a subnormal 32-bit number.
pub(super) fn never_subnormal(kernel: &Kernel, effort: &Effort) -> Result<Vec<bool>, Spent> {
    let readers = Readers::collect(kernel);
    let mut normal = vec![true; kernel.registers.len()];
    // Work list: registers that may be subnormal and whose readers are still to be examined.
    let mut found: Vec<Reg> = Vec::new();
    let examine = |inst: &Inst, normal: &mut Vec<bool>, found: &mut Vec<Reg>| {
        writes(&inst.op, &mut |reg| {
            if normal[reg.0 as usize] && !makes_normal(&inst.op, normal) {
                normal[reg.0 as usize] = false;
                found.push(reg);
            }
        });
    };
    for inst in &kernel.code {
        examine(inst, &mut normal, &mut found);
    }
    while let Some(reg) = found.pop() {
        effort.spend(1 + readers.get(reg).len() as u64)?;
        // Readers beyond the instructions are the ends of blocks.
        for inst in readers.get(reg).iter().filter_map(|&reader| kernel.code.get(reader as usize)) {
            examine(inst, &mut normal, &mut found);
        }
    }
    Ok(normal)
}

/// Returns whether an operand is not subnormal, given the registers that are not.
pub(super) fn is_normal(operand: &Operand, normal: &[bool]) -> bool {
    match operand {
        Operand::Reg(reg) => normal.get(reg.0 as usize).copied().unwrap_or(false),
        Operand::Imm(value) => !f32::from_bits(*value as u32).is_subnormal(),
        _ => false,
    }
}

/// Returns whether an instruction's results are not subnormal, given the registers that are not.
fn makes_normal(op: &Op, normal: &[bool]) -> bool {
    match op {
        Op::Unary { ty: Ty::F32, float, op, a, .. } => {
            float.ftz || matches!(op, Unary::Abs | Unary::Neg) && is_normal(a, normal)
        }
        Op::Binary { ty: Ty::F32, float, op, a, b, .. } => {
            let picks = matches!(op, Binary::Min | Binary::Max | Binary::MinNan | Binary::MaxNan);
            float.ftz || picks && is_normal(a, normal) && is_normal(b, normal)
        }
        Op::Fma { ty: Ty::F32, float, .. } => float.ftz,
        Op::Cvt { to: Ty::F32, from, ftz, .. } => *ftz || !from.float() || *from == Ty::F16,
        Op::Mov { ty: Ty::F32 | Ty::B32 | Ty::U32 | Ty::S32, src, .. } => is_normal(src, normal),
        Op::Selp { ty: Ty::F32 | Ty::B32 | Ty::U32 | Ty::S32, a, b, .. } => {
            is_normal(a, normal) && is_normal(b, normal)
        }
        Op::Shfl { a, .. } => is_normal(a, normal),
        _ => false,
    }
}
