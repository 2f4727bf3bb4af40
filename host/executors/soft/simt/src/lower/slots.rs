//! Register allocation: determines which registers are scalars, and which share a slot.

use std::collections::HashMap;

use vgpu_ptx::analysis::{self, Analysis, Assume, SlotGroup};
use vgpu_ptx::ir::{Base, Class, Kernel, Op, Operand, Reg, Space, Terminator};
use vgpu_ptx::{Effort, Spent};

use crate::machine::{FrameLayout, LaneRegisters, Slot, ValueLoc};

use super::invariant::{self, Invariants};

/// Locations of all registers, with the underlying analyses.
pub(super) struct RegisterAllocation {
    pub(super) places: Vec<ValueLoc>,
    pub(super) analysis: Analysis,
    pub(super) tid_yz_uniform: bool,
    /// Registers that only hold the value of a parameter, which frames hold from the start.
    pub(super) parameters: HashMap<Reg, Slot>,
    /// Registers whose only definition assigns a constant.
    pub(super) constants: HashMap<Reg, Operand>,
    /// Instructions that run once for each warp of a launch.
    pub(super) invariants: Invariants,
    /// Number of reads of each register in the text.
    pub(super) reads: Vec<u32>,
}

/// Allocates a location for every register. `aligned` tells that the lanes of a warp share `%tid.y` and
/// `%tid.z`.
pub(super) fn allocate(
    kernel: &Kernel,
    aligned: bool,
    layout: &mut FrameLayout,
    registers: &mut LaneRegisters,
    effort: &Effort,
) -> Result<RegisterAllocation, Spent> {
    let analysis = analysis::analyse(kernel, Assume { tid_yz_uniform: aligned }, effort)?;
    let slots = analysis::slots(kernel, &analysis);
    // Scalars come first, so that those of a loop lie within a few cache lines.
    let mut groups: [Vec<Slot>; 8] = Default::default();
    for scalars in [true, false] {
        for group in SlotGroup::ALL {
            if (group.uniform || group.class == Class::Pred) != scalars {
                continue;
            }
            for _ in 0..slots.counts[group.index()] {
                let slot = if scalars { layout.scalar() } else { layout.vector(group.class == Class::B64) };
                groups[group.index()].push(slot);
                match group {
                    SlotGroup { uniform: true, .. } => {}
                    SlotGroup { class: Class::Pred, .. } => registers.predicates.push(slot),
                    SlotGroup { class: Class::B16 | Class::B32, .. } => registers.narrow.push(slot),
                    SlotGroup { class: Class::B64, .. } => registers.wide.push(slot),
                }
            }
        }
    }
    let place = |(group, slot): (&SlotGroup, &u32)| {
        let slot = groups[group.index()][*slot as usize];
        if group.uniform { ValueLoc::Scalar(slot) } else { ValueLoc::Vector(slot) }
    };
    let mut places: Vec<ValueLoc> = slots.groups.iter().zip(&slots.of).map(place).collect();
    let (definitions, reads) = count(kernel);
    let parameters = parameters(kernel, &analysis, &definitions, layout);
    for (reg, &slot) in &parameters {
        places[reg.0 as usize] = ValueLoc::Scalar(slot);
    }
    let constants = constants(kernel, &definitions);
    let invariants = invariant::find(
        kernel,
        &definitions,
        |reg| parameters.contains_key(&reg),
        |reg| constants.contains_key(&reg),
        |reg| !analysis.uniform.contains(reg),
    );
    for &reg in &invariants.registers {
        let class = kernel.registers[reg.0 as usize];
        places[reg.0 as usize] = match (analysis.uniform.contains(reg), class) {
            (true, _) => ValueLoc::Scalar(layout.scalar()),
            (false, Class::Pred) => ValueLoc::Vector(layout.scalar()),
            (false, _) => ValueLoc::Vector(layout.vector(class == Class::B64)),
        };
    }
    for &(copy, original) in &invariants.copies {
        places[copy.0 as usize] = places[original.0 as usize];
    }
    Ok(RegisterAllocation {
        places,
        analysis,
        tid_yz_uniform: aligned,
        parameters,
        constants,
        invariants,
        reads,
    })
}

/// Counts how often each register is written and read in the text.
fn count(kernel: &Kernel) -> (Vec<u32>, Vec<u32>) {
    let mut definitions = vec![0u32; kernel.registers.len()];
    let mut reads = definitions.clone();
    for inst in &kernel.code {
        analysis::writes(&inst.op, &mut |reg| definitions[reg.0 as usize] += 1);
        analysis::reads(&inst.op, &mut |reg| reads[reg.0 as usize] += 1);
    }
    for block in &kernel.blocks {
        if let Terminator::Branch { guard, .. } = block.end {
            reads[guard.reg.0 as usize] += 1;
        }
    }
    (definitions, reads)
}

/// Finds the registers whose only definition assigns a constant. An instruction that reads such a register
/// earlier would read an undefined value.
fn constants(kernel: &Kernel, definitions: &[u32]) -> HashMap<Reg, Operand> {
    let mut constants = HashMap::new();
    for inst in &kernel.code {
        if let Op::Mov { dst, src, .. } = inst.op
            && matches!(
                src,
                Operand::Imm(_) | Operand::Address(Base::Zero | Base::DynamicShared | Base::Global(_), _)
            )
            && kernel.registers[dst.0 as usize] != Class::Pred
            && definitions[dst.0 as usize] == 1
        {
            constants.insert(dst, src);
        }
    }
    constants
}

/// Finds the uniform registers whose only definition loads a parameter.
fn parameters(
    kernel: &Kernel,
    analysis: &Analysis,
    definitions: &[u32],
    layout: &mut FrameLayout,
) -> HashMap<Reg, Slot> {
    let mut parameters = HashMap::new();
    for inst in &kernel.code {
        if let Op::Ld { mem, dst } = &inst.op
            && mem.space == Space::Param
            && mem.base == Base::Zero
            && let [Some(dst)] = dst.as_slice()
            && definitions[dst.0 as usize] == 1
            && analysis.uniform.contains(*dst)
        {
            parameters.insert(*dst, layout.scalar());
        }
    }
    parameters
}
