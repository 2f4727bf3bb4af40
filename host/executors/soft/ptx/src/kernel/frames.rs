//! Stack frames of a kernel's functions: their sizes, and the registers that calls spill to them.

use crate::analysis::live::Live;
use crate::effort::{Effort, Spent};
use crate::ir::{Block, BlockId, Class, Kernel, Reg, Terminator};
use crate::kernel::flow::{BranchTarget, End, Flow};
use crate::kernel::routines::Routines;

/// Layout of the stack frames.
pub struct StackPlan {
    /// Indexed by call: the registers that it spills, with their offsets in bytes in the caller's frame.
    pub saved: Vec<Vec<(Reg, i64)>>,
    /// Indexed by routine: size of its frame in bytes, with what its calls spill.
    pub frames: Vec<u64>,
}

/// Returns a table indexed by routine, then by another routine: whether the first can reach the second by
/// calls. A call of B in A may reenter A if B can reach A.
fn leading(routines: &Routines<'_>, effort: &Effort) -> Result<Vec<Vec<bool>>, Spent> {
    let count = routines.list.len();
    let mut next: Vec<Vec<usize>> = vec![Vec::new(); count];
    for site in &routines.sites {
        if let Some(caller) = site.caller {
            next[caller].extend(site.reached());
        }
    }
    for list in &mut next {
        list.sort_unstable();
        list.dedup();
    }
    let edges: u64 = next.iter().map(|list| list.len() as u64 + 1).sum();
    effort.spend(edges * count as u64 / 8 + edges)?;
    // Indexed by routine: the routines that it can reach by calls, including itself.
    let mut leads = vec![vec![false; count]; count];
    for (from, leads) in leads.iter_mut().enumerate() {
        let mut pending = vec![from];
        while let Some(routine) = pending.pop() {
            if !std::mem::replace(&mut leads[routine], true) {
                pending.extend(&next[routine]);
            }
        }
    }
    Ok(leads)
}

/// Computes the registers that are live at the starts of blocks, of each function separately.
fn live(flow: &Flow, labels: &[u32], registers: &[Class], effort: &Effort) -> Result<Live, Spent> {
    let id = |target: BranchTarget| match target {
        BranchTarget::Block(block) => BlockId(block),
        BranchTarget::Label(reference) => BlockId(labels[reference]),
    };
    let blocks = flow.blocks.iter().enumerate().map(|(index, raw)| Block {
        code: raw.start..raw.stop,
        line: raw.line,
        end: match raw.end {
            End::Goto(to) => Terminator::Goto(id(to)),
            End::Branch { guard, uniform, then, otherwise } => {
                Terminator::Branch { guard, uniform, then: id(then), otherwise: id(otherwise) }
            }
            // The effect of a function on registers is taken into account at its calls.
            End::Call(_) => Terminator::Goto(BlockId(index as u32 + 1)),
            _ => Terminator::Return,
        },
    });
    let (registers, code, blocks) = (registers.to_vec(), flow.code.clone(), blocks.collect());
    let kernel = Kernel { registers, code, blocks, ..Kernel::default() };
    Live::compute(&kernel, effort)
}

impl StackPlan {
    /// Finds the registers that calls spill: those that are live after a call that may reenter its caller.
    /// `frame` is the register with the offset of the frame, which calls change themselves.
    pub fn make(
        flow: &Flow,
        labels: &[u32],
        routines: &Routines<'_>,
        frame: Reg,
        align: u64,
        registers: &[Class],
        effort: &Effort,
    ) -> Result<Self, Spent> {
        let live = live(flow, labels, registers, effort)?;
        let leads = leading(routines, effort)?;
        let mut ends: Vec<u64> = routines.list.iter().map(|routine| routine.bytes).collect();
        let mut saved = vec![Vec::new(); routines.sites.len()];
        let mut held = 0;
        for (block, raw) in flow.blocks.iter().enumerate() {
            let End::Call(number) = raw.end else { continue };
            let Some(site) = routines.sites.get(number as usize) else { continue };
            let Some(caller) = site.caller else { continue };
            if !site.reached().any(|routine| leads[routine][caller]) {
                continue;
            }
            let Some(behind) = live.starts.get(block + 1) else { continue };
            effort.spend(behind.len() as u64)?;
            held += (behind.len() * size_of::<(Reg, i64)>()) as u64;
            effort.hold(2 * flow.bytes() + held)?;
            let mut end = routines.list[caller].bytes;
            for reg in behind.iter().filter(|&reg| reg != frame && !routines.is_transfer(reg)) {
                let bytes = match registers[reg.0 as usize] {
                    Class::Pred | Class::B32 => 4,
                    Class::B16 => 2,
                    Class::B64 => 8,
                };
                let at = end.next_multiple_of(bytes);
                saved[number as usize].push((reg, at as i64));
                end = at + bytes;
            }
            ends[caller] = ends[caller].max(end);
        }
        let frames = ends.into_iter().map(|end| end.next_multiple_of(align)).collect();
        Ok(Self { saved, frames })
    }
}
