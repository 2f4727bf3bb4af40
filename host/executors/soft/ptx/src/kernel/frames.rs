//! What a kernel's functions keep on the stack: the sizes of their frames, and what calls save there.

use crate::analysis::live::Live;
use crate::effort::{Effort, Spent};
use crate::ir::{Block, BlockId, Class, Kernel, Reg, Terminator};
use crate::kernel::flow::{End, Flow, Target};
use crate::kernel::routines::Routines;

/// What is kept where.
pub struct Plan {
    /// By call: the registers that it saves, with their places in the caller's frame.
    pub saved: Vec<Vec<(Reg, i64)>>,
    /// By routine: bytes of its frame.
    pub frames: Vec<u64>,
}

/// By routine: whether a call in it may lead back to it, by way of each routine.
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
    // By routine: those to which it may lead, itself among them.
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

/// The registers that are live at the starts of blocks, of each function by itself.
fn live(flow: &Flow, labels: &[u32], registers: &[Class], effort: &Effort) -> Result<Live, Spent> {
    let id = |target: Target| match target {
        Target::Block(block) => BlockId(block),
        Target::Label(reference) => BlockId(labels[reference]),
    };
    let blocks = flow.blocks.iter().enumerate().map(|(index, raw)| Block {
        code: raw.start..raw.stop,
        line: raw.line,
        end: match raw.end {
            End::Goto(to) => Terminator::Goto(id(to)),
            End::Branch { guard, uniform, then, otherwise } => {
                Terminator::Branch { guard, uniform, then: id(then), otherwise: id(otherwise) }
            }
            // What a function does to registers is seen at its own calls.
            End::Call(_) => Terminator::Goto(BlockId(index as u32 + 1)),
            _ => Terminator::Return,
        },
    });
    let kernel = Kernel {
        name: String::new(),
        params: Vec::new(),
        param_bytes: 0,
        registers: registers.to_vec(),
        code: flow.code.clone(),
        blocks: blocks.collect(),
        shared_bytes: 0,
        dynamic_shared_offset: 0,
        local_bytes: 0,
        calls: false,
        max_threads: 0,
        required_threads: None,
    };
    Live::compute(&kernel, effort)
}

impl Plan {
    /// Finds what calls save. `frame` is the register with the offset of the frame, which calls change
    /// themselves.
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
