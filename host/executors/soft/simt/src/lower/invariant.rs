//! Finds launch invariants: instructions whose results are the same in all blocks. They run once for each
//! warp of a launch, not in each block.
//!
//! Such an instruction has no side effect. It reads only constants, parameters, special registers that do not
//! change, and results of other invariants, and it is the only definition of its results. Its position in the
//! text does not matter, because an instruction that reads the result before would read an undefined value.
//! Its registers have slots of their own, which nothing else writes, so that they are preserved from block to
//! block.

use vgpu_ptx::analysis;
use vgpu_ptx::ir::{Class, Kernel, Op, Operand, Reg, Special};

/// Maximum number of result vectors. They occupy part of the cache as long as blocks run.
const MOST_VECTORS: usize = 32;

/// Launch invariants of a kernel, and their registers.
#[derive(Default)]
pub(super) struct Invariants {
    /// Whether each instruction is a launch invariant.
    pub(super) once: Vec<bool>,
    /// Registers that hold results of invariants.
    pub(super) registers: Vec<Reg>,
    /// Destinations and sources of moves. Both registers have the same value.
    pub(super) copies: Vec<(Reg, Reg)>,
}

/// Finds the launch invariants. `parameter` and `constant` tell whether a register holds only a parameter or
/// a constant, and `vector` tells whether each lane has its own value in a register.
pub(super) fn find(
    kernel: &Kernel,
    definitions: &[u32],
    parameter: impl Fn(Reg) -> bool,
    constant: impl Fn(Reg) -> bool,
    vector: impl Fn(Reg) -> bool,
) -> Invariants {
    let mut found = Invariants { once: vec![false; kernel.code.len()], ..Invariants::default() };
    // Whether each register has one value throughout the launch, and whether it already has a slot for it.
    let mut known = vec![false; kernel.registers.len()];
    let mut placed = known.clone();
    for index in 0..kernel.registers.len() {
        let reg = Reg(index as u32);
        placed[index] = parameter(reg);
        known[index] = placed[index] || constant(reg);
    }
    let mut vectors = 0;
    for (index, inst) in kernel.code.iter().enumerate() {
        if !computes(&inst.op) {
            continue;
        }
        let mut invariant = !changes(&inst.op);
        analysis::reads(&inst.op, &mut |reg| invariant &= known[reg.0 as usize]);
        let mut results = Vec::new();
        analysis::writes(&inst.op, &mut |reg| {
            // Registers that are known already are the destinations of moves of constants.
            invariant &= definitions[reg.0 as usize] == 1 && !known[reg.0 as usize];
            results.push(reg);
        });
        let wide =
            results.iter().filter(|&&reg| kernel.registers[reg.0 as usize] != Class::Pred && vector(reg));
        let wide = wide.count();
        if !invariant || results.is_empty() || vectors + wide > MOST_VECTORS {
            continue;
        }
        found.once[index] = true;
        for reg in results {
            known[reg.0 as usize] = true;
            placed[reg.0 as usize] = true;
            match inst.op {
                Op::Mov { src: Operand::Reg(src), .. }
                    if placed[src.0 as usize]
                        && kernel.registers[src.0 as usize] == kernel.registers[reg.0 as usize] =>
                {
                    found.copies.push((reg, src));
                }
                _ => found.registers.push(reg),
            }
        }
        vectors += wide;
    }
    found
}

/// Returns whether an instruction has no side effect and only computes results from its operands.
const fn computes(op: &Op) -> bool {
    matches!(
        op,
        Op::Mov { .. }
            | Op::Pack { .. }
            | Op::Unpack { .. }
            | Op::Unary { .. }
            | Op::Binary { .. }
            | Op::Mul { .. }
            | Op::Mad { .. }
            | Op::Fma { .. }
            | Op::Dp4a { .. }
            | Op::Dp2a { .. }
            | Op::Bfe { .. }
            | Op::Bfi { .. }
            | Op::Bfind { .. }
            | Op::Bmsk { .. }
            | Op::Shf { .. }
            | Op::Prmt { .. }
            | Op::Lop3 { .. }
            | Op::Setp { .. }
            | Op::Set { .. }
            | Op::Selp { .. }
            | Op::PredBinary { .. }
            | Op::PredMov { .. }
            | Op::PredImm { .. }
            | Op::Cvt { .. }
            | Op::CvtPack { .. }
            | Op::FromEighths { .. }
            | Op::ToTf32 { .. }
            | Op::ToEighths { .. }
            | Op::Cvta { .. }
            | Op::IsSpace { .. }
    )
}

/// Returns whether an instruction reads a special register that differs from block to block or from read to
/// read.
fn changes(op: &Op) -> bool {
    let mut changes = false;
    analysis::specials(op, &mut |special| {
        changes |=
            matches!(special, Special::Ctaid(_) | Special::Clock | Special::Clock64 | Special::GlobalTimer);
    });
    changes
}
