//! Where registers are: which are scalars, and which share a slot.

use std::collections::HashMap;

use vgpu_ptx::analysis::{self, Analysis, Assume, Group};
use vgpu_ptx::ir::{Base, Class, Kernel, Op, Reg, Space};

use crate::machine::{Layout, Slot};
use crate::ops::Place;
use crate::program::Registers;

/// The places of registers.
pub(super) struct Allocation {
    pub(super) places: Vec<Place>,
    pub(super) analysis: Analysis,
    pub(super) tid_yz_uniform: bool,
    /// Registers that are a parameter's value and nothing else: frames hold it from the start.
    pub(super) parameters: HashMap<Reg, Slot>,
}

/// Gives every register a place. `aligned`: lanes of a warp share `%tid.y` and `%tid.z`.
pub(super) fn allocate(
    kernel: &Kernel,
    aligned: bool,
    layout: &mut Layout,
    registers: &mut Registers,
) -> Allocation {
    let analysis = analysis::analyse(kernel, Assume { tid_yz_uniform: aligned });
    let slots = analysis::slots(kernel, &analysis);
    // Scalars first: those of all kernels' loops are then within a few cache lines.
    let mut groups: [Vec<Slot>; 8] = Default::default();
    for scalars in [true, false] {
        for group in Group::ALL {
            if (group.uniform || group.class == Class::Pred) != scalars {
                continue;
            }
            for _ in 0..slots.counts[group.index()] {
                let slot = if scalars { layout.scalar() } else { layout.vector(group.class == Class::B64) };
                groups[group.index()].push(slot);
                match group {
                    Group { uniform: true, .. } => {}
                    Group { class: Class::Pred, .. } => registers.predicates.push(slot),
                    Group { class: Class::B16 | Class::B32, .. } => registers.narrow.push(slot),
                    Group { class: Class::B64, .. } => registers.wide.push(slot),
                }
            }
        }
    }
    let place = |(group, slot): (&Group, &u32)| {
        let slot = groups[group.index()][*slot as usize];
        if group.uniform { Place::Scalar(slot) } else { Place::Vector(slot) }
    };
    let mut places: Vec<Place> = slots.groups.iter().zip(&slots.of).map(place).collect();
    let parameters = parameters(kernel, &analysis, layout);
    for (reg, &slot) in &parameters {
        places[reg.0 as usize] = Place::Scalar(slot);
    }
    Allocation { places, analysis, tid_yz_uniform: aligned, parameters }
}

/// Uniform registers whose only definition loads a parameter.
fn parameters(kernel: &Kernel, analysis: &Analysis, layout: &mut Layout) -> HashMap<Reg, Slot> {
    let mut definitions = vec![0u32; kernel.registers.len()];
    for inst in &kernel.code {
        analysis::writes(&inst.op, &mut |reg| definitions[reg.0 as usize] += 1);
    }
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
