//! Allocation of slots: registers whose live intervals do not overlap share one.
//!
//! nvcc gives each value a register of its own: up to 42,757 in one real kernel, which is 5 MiB for a warp.
//! Linear-scan allocation reduces this to what fits into a cache. The live interval of a register is a range
//! of the text that covers all positions where its value is needed: from its first to its last access, the
//! starts and ends of the blocks across which it is live, and all blocks that can run while lanes wait that
//! need it (see [`Analysis::waiting`]). Registers of one group whose intervals do not overlap get the same
//! slot. An instruction's sources and results never share a slot, so that an engine may write results before
//! it has read all sources. Only a coalesced copy has the slot of its original.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::access::{reads, writes};
use super::copies::copies;
use super::facts::Analysis;
use crate::ir::{Class, Kernel, Reg, Terminator};

/// Group of registers that may share slots. They have the same width, and all or none are uniform.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SlotGroup {
    /// Width of the registers.
    pub class: Class,
    /// Whether the registers have one value for the whole warp.
    pub uniform: bool,
}

impl SlotGroup {
    /// Every combination of width and uniformity.
    pub const ALL: [Self; 8] = {
        let classes = [Class::Pred, Class::B16, Class::B32, Class::B64];
        let mut all = [Self { class: Class::Pred, uniform: false }; 8];
        let mut index = 0;
        while index < 8 {
            all[index] = Self { class: classes[index / 2], uniform: index % 2 == 1 };
            index += 1;
        }
        all
    };

    /// Returns the index of the group in [`Self::ALL`].
    pub const fn index(self) -> usize {
        self.class as usize * 2 + self.uniform as usize
    }
}

/// Slots of all registers of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slots {
    /// Group of each register, by the register's index.
    pub groups: Vec<SlotGroup>,
    /// Indexed by register: its slot among those of its group.
    pub of: Vec<u32>,
    /// Indexed by register: the register that it copies and whose slot it has, or itself if it is no copy. An
    /// engine need not carry out the move that makes a copy (move coalescing).
    pub copy_of: Vec<Reg>,
    /// Number of slots of each group, indexed by [`SlotGroup::index`].
    pub counts: [u32; 8],
}

/// Finds slots for all registers of a kernel. Results of [`Analysis`] for a register also hold for its slot:
/// a slot of a uniform group needs one value, and a write must preserve the values of lanes that do not take
/// part exactly if its register's writes must.
pub fn slots(kernel: &Kernel, analysis: &Analysis) -> Slots {
    let copy_of = copies(kernel, analysis);
    let intervals = intervals(kernel, analysis, &copy_of);
    let groups: Vec<SlotGroup> = kernel
        .registers
        .iter()
        .enumerate()
        .map(|(index, &class)| SlotGroup { class, uniform: analysis.uniform.contains(Reg(index as u32)) })
        .collect();
    let mut order: Vec<u32> = (0..kernel.registers.len() as u32).collect();
    order.sort_unstable_by_key(|&reg| intervals[reg as usize]);
    let mut of = vec![0; kernel.registers.len()];
    let mut counts = [0; 8];
    // For each group, slots in use by the end of their interval, and free slots. The lowest free slot is
    // reused first, because it is likely in the cache.
    let mut busy: [BinaryHeap<Reverse<(u32, u32)>>; 8] = Default::default();
    let mut free: [BinaryHeap<Reverse<u32>>; 8] = Default::default();
    for reg in order {
        let Some((start, end)) = intervals[reg as usize] else {
            // The register is never accessed, but slot 0 must exist.
            let count = &mut counts[groups[reg as usize].index()];
            *count = (*count).max(1);
            continue;
        };
        let group = groups[reg as usize].index();
        while let Some(&Reverse((last, slot))) = busy[group].peek()
            && last < start
        {
            busy[group].pop();
            free[group].push(Reverse(slot));
        }
        let slot = free[group].pop().map_or(counts[group], |Reverse(slot)| slot);
        counts[group] = counts[group].max(slot + 1);
        busy[group].push(Reverse((end, slot)));
        of[reg as usize] = slot;
    }
    for (reg, &original) in copy_of.iter().enumerate() {
        of[reg] = of[original.0 as usize];
    }
    Slots { groups, of, copy_of, counts }
}

/// Returns, indexed by register, its live interval: the first and last position at which it is needed, or
/// `None` if it is never accessed. Instructions have positions in the order of the text, and each terminator
/// has one. Copies have no intervals: those of their originals cover them.
fn intervals(kernel: &Kernel, analysis: &Analysis, copy_of: &[Reg]) -> Vec<Option<(u32, u32)>> {
    let mut intervals: Vec<Option<(u32, u32)>> = vec![None; kernel.registers.len()];
    let mut cover = |reg: Reg, position: u32| {
        let original = copy_of[reg.0 as usize];
        let interval = intervals[original.0 as usize].get_or_insert((position, position));
        *interval = (interval.0.min(position), interval.1.max(position));
    };
    for (index, block) in kernel.blocks.iter().enumerate() {
        let start = block.code.start + index as u32;
        let end = block.code.end + index as u32;
        for reg in analysis.live_in[index].iter() {
            cover(reg, start);
        }
        for reg in analysis.live_out[index].iter() {
            cover(reg, end);
        }
        for reg in analysis.waiting[index].iter() {
            cover(reg, start);
            cover(reg, end);
        }
        for code in block.code.clone() {
            let op = &kernel.code[code as usize].op;
            reads(op, &mut |reg| cover(reg, code + index as u32));
            writes(op, &mut |reg| cover(reg, code + index as u32));
        }
        if let Terminator::Branch { guard, .. } = block.end {
            cover(guard.reg, end);
        }
    }
    intervals
}
