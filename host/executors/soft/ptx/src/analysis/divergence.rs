//! The rules of the [module](super) for pairs of blocks, uniform registers and blending, applied until a
//! fixed point is reached.

use std::sync::Arc;

use fixedbitset::FixedBitSet;

use super::access::{RegisterUse, accesses, writes};
use super::facts::{Analysis, Assume};
use super::live::{Live, successors};
use super::readers::Readers;
use super::sets::{Members, RegSet};
use crate::effort::{Effort, Spent};
use crate::ir::{Base, Kernel, Mem, Op, Operand, Reg, Space, Special, Terminator};

struct Divergence<'k> {
    kernel: &'k Kernel,
    assume: Assume,
    live: Live,
    /// One bit for each register, set if the register is not uniform: its value may differ between the lanes
    /// of a warp.
    varies: FixedBitSet,
    /// Registers that were found to vary, and whose readers have not been examined yet.
    varying: Vec<Reg>,
    /// Indexed by block B: the blocks above B at which lanes may wait while B runs.
    pending: Vec<FixedBitSet>,
    /// Work list: pairs of blocks that were found, and have not been examined yet.
    pairs: Vec<(u32, u32)>,
    readers: Readers,
}

/// Determines which registers are uniform, which writes must blend and which branches cannot diverge. `live`
/// has the kernel's live registers. Fails if this takes more work than `effort` allows.
pub(super) fn analyse(
    kernel: &Kernel,
    assume: Assume,
    live: Live,
    effort: &Effort,
) -> Result<Analysis, Spent> {
    let mut state = Divergence {
        kernel,
        assume,
        live,
        varies: FixedBitSet::with_capacity(kernel.registers.len()),
        varying: Vec::new(),
        pending: vec![FixedBitSet::new(); kernel.blocks.len()],
        pairs: Vec::new(),
        readers: Readers::collect(kernel),
    };
    for inst in &kernel.code {
        state.instruction(&inst.op);
    }
    state.propagate(effort)?;
    state.finish(effort)
}

impl Divergence<'_> {
    fn propagate(&mut self, effort: &Effort) -> Result<(), Spent> {
        let kernel = self.kernel;
        loop {
            if let Some(reg) = self.varying.pop() {
                effort.spend(1 + self.readers.get(reg).len() as u64)?;
                for index in 0..self.readers.get(reg).len() {
                    let reader = self.readers.get(reg)[index] as usize;
                    match kernel.code.get(reader) {
                        Some(inst) => self.instruction(&inst.op),
                        None => self.parts(reader - kernel.code.len()),
                    }
                }
            } else if let Some((low, high)) = self.pairs.pop() {
                effort.spend(self.live.members.words())?;
                self.pair(low, high);
            } else {
                return Ok(());
            }
        }
    }

    fn vary(&mut self, reg: Reg) {
        if !self.varies.put(reg.0 as usize) {
            self.varying.push(reg);
        }
    }

    /// Applies rule 1 of uniform registers to an instruction: if its results may differ between lanes, what
    /// it writes varies.
    fn instruction(&mut self, op: &Op) {
        if self.tells_lanes_apart(op) {
            writes(op, &mut |reg| self.vary(reg));
        }
    }

    /// Returns whether the results of an instruction may differ between the lanes that run it, by itself or
    /// because a source does.
    fn tells_lanes_apart(&self, op: &Op) -> bool {
        match *op {
            // A thread's local memory is its own, and a generic address may point there.
            Op::Atom { .. }
            | Op::Shfl { .. }
            | Op::Match { all: false, .. }
            | Op::Mma { .. }
            | Op::LdMatrix { .. }
            | Op::MovMatrix { .. }
            | Op::Printf { .. }
            | Op::Malloc { .. }
            | Op::Ld { mem: Mem { space: Space::Local | Space::Generic, .. }, .. } => true,
            Op::Ld { mem, .. } => matches!(mem.base, Base::Reg(reg) if self.varies.contains(reg.0 as usize)),
            // All lanes that the mask names get the same result, even if their sources differ.
            Op::Vote { mask, .. }
            | Op::Ballot { mask, .. }
            | Op::Redux { mask, .. }
            | Op::Match { all: true, mask, .. } => self.operand_varies(mask),
            Op::BarRed { barrier, threads, .. } => {
                self.operand_varies(barrier) || threads.is_some_and(|threads| self.operand_varies(threads))
            }
            ref op => {
                let mut varies = false;
                accesses(op, &mut |access| {
                    varies |= match access {
                        RegisterUse::Read(reg) => self.varies.contains(reg.0 as usize),
                        RegisterUse::Special(special) => self.special_varies(special),
                        RegisterUse::Write(_) => false,
                    };
                });
                varies
            }
        }
    }

    fn operand_varies(&self, operand: Operand) -> bool {
        match operand {
            Operand::Reg(reg) | Operand::Address(Base::Reg(reg), _) => self.varies.contains(reg.0 as usize),
            Operand::Special(special) => self.special_varies(special),
            Operand::Imm(_) | Operand::Address(..) => false,
        }
    }

    /// Returns whether a special register may differ between the lanes of a warp. Clocks do not: an
    /// instruction runs once for all lanes that take part.
    fn special_varies(&self, special: Special) -> bool {
        match special {
            Special::Tid(0)
            | Special::LaneId
            | Special::LaneMaskEq
            | Special::LaneMaskLe
            | Special::LaneMaskLt
            | Special::LaneMaskGe
            | Special::LaneMaskGt => true,
            Special::Tid(_) => !self.assume.tid_yz_uniform,
            _ => false,
        }
    }

    /// Records that a block's terminator may diverge: its two successors become a pair.
    fn parts(&mut self, block: usize) {
        if let Terminator::Branch { then, otherwise, .. } = self.kernel.blocks[block].end
            && then != otherwise
        {
            self.add_pair(then.0, otherwise.0);
        }
    }

    fn add_pair(&mut self, a: u32, b: u32) {
        let (low, high) = (a.min(b), a.max(b));
        let row = &mut self.pending[low as usize];
        if row.is_empty() {
            row.grow(self.kernel.blocks.len());
        }
        if !row.put(high as usize) {
            self.pairs.push((low, high));
        }
    }

    /// Records that block `low` may run while lanes wait at `high`. Applies rule 2 of uniform registers, and
    /// finds further pairs.
    fn pair(&mut self, low: u32, high: u32) {
        let written = &self.live.written[low as usize].bits;
        let live = &self.live.starts[high as usize].bits;
        let lost: Vec<usize> = written.intersection(live).collect();
        for place in lost {
            self.vary(self.live.members.list[place]);
        }
        let kernel = self.kernel;
        for next in successors(&kernel.blocks[low as usize].end) {
            if next.0 != high {
                self.add_pair(next.0, high);
            }
        }
    }

    fn finish(self, effort: &Effort) -> Result<Analysis, Spent> {
        let Self { kernel, live, varies, pending, .. } = self;
        let Live { members, starts: live_in, ends: live_out, written } = live;
        let mut waiting = vec![RegSet::new(Arc::clone(&members)); kernel.blocks.len()];
        let mut kept = FixedBitSet::with_capacity(members.list.len());
        for (block, waiting) in waiting.iter_mut().enumerate() {
            effort.spend(pending[block].count_ones(..) as u64 * members.words() + 1)?;
            for high in pending[block].ones() {
                waiting.bits.union_with(&live_in[high].bits);
            }
            kept.extend(waiting.bits.intersection(&written[block].bits));
        }
        let mut everything = FixedBitSet::with_capacity(kernel.registers.len());
        everything.insert_range(..);
        let everything = Arc::new(Members::new(&everything));
        let mut uniform = RegSet::new(Arc::clone(&everything));
        uniform.bits.insert_range(..);
        uniform.bits.difference_with(&varies);
        let mut blend = RegSet::new(everything);
        blend.bits.extend(kept.ones().map(|place| members.list[place].0 as usize));
        let uniform_branch = kernel.blocks.iter().map(|block| match block.end {
            Terminator::Branch { guard, then, otherwise, .. } => {
                then == otherwise || !varies.contains(guard.reg.0 as usize)
            }
            _ => true,
        });
        let uniform_branch = uniform_branch.collect();
        // The search for slots visits all of these pairs.
        let sets = live_in.iter().chain(&live_out).chain(&waiting);
        effort.spend(sets.map(|set: &RegSet| set.len() as u64).sum())?;
        Ok(Analysis { uniform, blend, uniform_branch, live_in, live_out, waiting })
    }
}
