//! Model of a warp of eight lanes, as `vgpu_ptx::analysis` describes it, with exchangeable storage for
//! registers.

mod generate;
mod storage;

pub use generate::kernel;
pub use storage::{Plain, Shared, Storage, Trusting};
use vgpu_ptx::analysis::{Assume, reads, writes};
use vgpu_ptx::ir::{
    Base, BlockId, Combine, Compare, Guard, Kernel, Op, Operand, Reg, Space, Special, Terminator, Vote,
};

/// Number of lanes of a warp.
pub const LANES: usize = 8;
/// Number of blocks after which a lane returns, because random loops need not end.
const BLOCKS_MOST: u32 = 40;

/// Lanes of a warp.
pub struct Lanes;

impl Lanes {
    /// Returns the numbers of all lanes.
    pub fn all() -> std::ops::Range<usize> {
        0..LANES
    }
}

/// Stores of a lane, each with its instruction and value.
pub type Trace = Vec<(u32, u64)>;

/// Warp that interprets a kernel, with its registers and memory.
pub struct WarpModel<'k, S> {
    kernel: &'k Kernel,
    assume: Assume,
    storage: S,
    traces: Vec<Trace>,
    /// Indexed by block: whether the lanes diverged at its end.
    parted: Vec<bool>,
}

/// Mixes bits, in place of the contents of memory.
fn stir(value: u64) -> u64 {
    (value ^ 0x9e37_79b9).wrapping_mul(0xff51_afd7_ed55_8ccd) >> 40 & 7
}

impl<'k, S: Storage> WarpModel<'k, S> {
    pub fn new(kernel: &'k Kernel, assume: Assume, storage: S) -> Self {
        let parted = vec![false; kernel.blocks.len()];
        Self { kernel, assume, storage, traces: vec![Vec::new(); LANES], parted }
    }

    /// Runs all lanes, the lowest block first.
    pub fn execute(mut self) -> Vec<Trace> {
        self.step_all((1 << LANES) - 1);
        self.traces
    }

    /// Runs one lane without the others.
    pub fn run_alone(mut self, lane: usize) -> Trace {
        self.step_all(1 << lane);
        self.traces.swap_remove(lane)
    }

    fn step_all(&mut self, mask: u32) {
        let mut pending = vec![0_u32; self.kernel.blocks.len()];
        pending[0] = mask;
        let mut steps = [0_u32; LANES];
        while let Some(block) = pending.iter().position(|&mask| mask != 0) {
            let mut mask = std::mem::take(&mut pending[block]);
            let code = self.kernel.blocks[block].code.clone();
            for index in code {
                self.instruction(block, index, mask);
            }
            let lanes: Vec<usize> = lanes(mask).collect();
            for lane in lanes {
                steps[lane] += 1;
                if steps[lane] == BLOCKS_MOST {
                    mask &= !(1 << lane);
                }
            }
            match self.kernel.blocks[block].end {
                Terminator::Goto(BlockId(next)) => pending[next as usize] |= mask,
                Terminator::Branch { guard, then, otherwise, .. } => {
                    let taken = lanes_where(mask, |lane| self.guard(lane, guard));
                    self.parted[block] |= taken != 0 && taken != mask && then != otherwise;
                    pending[then.0 as usize] |= taken;
                    pending[otherwise.0 as usize] |= mask & !taken;
                }
                _ => {}
            }
        }
    }

    fn reg(&self, lane: usize, reg: Reg) -> u64 {
        self.storage.read(lane, reg)
    }

    fn guard(&self, lane: usize, guard: Guard) -> bool {
        (self.reg(lane, guard.reg) != 0) != guard.negated
    }

    fn operand(&self, lane: usize, operand: Operand) -> u64 {
        match operand {
            Operand::Reg(reg) => self.reg(lane, reg),
            Operand::Imm(value) => value,
            Operand::Special(Special::Tid(0) | Special::LaneId) => lane as u64,
            Operand::Special(Special::Tid(_)) if self.assume.tid_yz_uniform => 1,
            Operand::Special(Special::Tid(_)) => lane as u64 / 4,
            Operand::Special(_) => 3,
            Operand::Address(_, offset) => offset as u64,
        }
    }

    fn instruction(&mut self, block: usize, index: u32, mask: u32) {
        let op = &self.kernel.code[index as usize].op;
        self.storage.check(op);
        // All results are computed before the writes, because lanes take part at once.
        let mut results: Vec<(Reg, Vec<(usize, u64)>)> = Vec::new();
        let mut write = |reg: Reg, value: &dyn Fn(usize) -> u64| {
            results.push((reg, lanes(mask).map(|lane| (lane, value(lane))).collect()));
        };
        match *op {
            Op::Mov { dst, src, .. } => write(dst, &|lane| self.operand(lane, src)),
            Op::Binary { dst, a, b, .. } => {
                write(dst, &|lane| self.operand(lane, a).wrapping_add(self.operand(lane, b)) & 15);
            }
            Op::Selp { dst, a, b, p, .. } => {
                write(dst, &|lane| self.operand(lane, if self.guard(lane, p) { a } else { b }));
            }
            Op::Setp { compare, combine, dst, complement, a, b, .. } => {
                let holds = |lane, complement| {
                    let (a, b) = (self.operand(lane, a), self.operand(lane, b));
                    let holds = if compare == Compare::Lt { a < b } else { a == b } != complement;
                    u64::from(match combine {
                        None => holds,
                        Some((Combine::And, guard)) => holds & self.guard(lane, guard),
                        Some((_, guard)) => holds | self.guard(lane, guard),
                    })
                };
                if let Some(dst) = dst {
                    write(dst, &|lane| holds(lane, false));
                }
                if let Some(complement) = complement {
                    write(complement, &|lane| holds(lane, true));
                }
            }
            Op::PredBinary { dst, a, b, .. } => {
                write(dst, &|lane| u64::from(self.guard(lane, a) && self.guard(lane, b)));
            }
            Op::Ld { mem, ref dst } => {
                for (element, dst) in dst.iter().enumerate() {
                    let Some(dst) = *dst else { continue };
                    write(dst, &|lane| {
                        let base = if let Base::Reg(reg) = mem.base { self.reg(lane, reg) } else { 0 };
                        let own =
                            if matches!(mem.space, Space::Local | Space::Generic) { lane << 8 } else { 0 };
                        stir(base + (own + element) as u64)
                    });
                }
            }
            Op::Atom { dst: Some(dst), .. } => write(dst, &|lane| stir(lane as u64)),
            Op::Shfl { dst: Some(dst), valid: Some(valid), a, b, .. } => {
                let source = |lane: usize| lane ^ (self.operand(lane, b) as usize % LANES);
                let inside = |lane: usize| mask >> source(lane) & 1 != 0;
                write(dst, &|lane| self.operand(if inside(lane) { source(lane) } else { lane }, a));
                write(valid, &|lane| u64::from(inside(lane)));
            }
            Op::Vote { op, dst, p, mask: named } => {
                write(dst, &|lane| {
                    let named = self.operand(lane, named) as u32 & mask;
                    let mut votes = lanes(named).map(|lane| self.guard(lane, p));
                    u64::from(if op == Vote::All { votes.all(|vote| vote) } else { votes.any(|vote| vote) })
                });
            }
            Op::Ballot { dst, p, mask: named } => {
                write(dst, &|lane| {
                    let named = self.operand(lane, named) as u32 & mask;
                    u64::from(lanes_where(named, |lane| self.guard(lane, p)))
                });
            }
            Op::ActiveMask { dst } => write(dst, &|_| u64::from(mask)),
            Op::St { ref src, .. } => {
                for lane in lanes(mask) {
                    for &src in src {
                        let value = self.operand(lane, src);
                        self.traces[lane].push((index, value));
                    }
                }
            }
            ref op => unreachable!("{op:?} is not generated"),
        }
        for (reg, values) in results {
            self.storage.write(block, reg, &values);
        }
    }
}

/// Returns the lanes of a mask.
fn lanes(mask: u32) -> impl Iterator<Item = usize> {
    Lanes::all().filter(move |lane| mask >> lane & 1 != 0)
}

fn lanes_where(mask: u32, holds: impl Fn(usize) -> bool) -> u32 {
    lanes(mask).filter(|&lane| holds(lane)).fold(0, |mask, lane| mask | 1 << lane)
}

/// Returns whether the lanes diverged at the block's terminator in a run.
pub fn parts(kernel: &Kernel, assume: Assume, block: usize) -> bool {
    let mut machine = WarpModel::new(kernel, assume, Plain::new(kernel));
    machine.step_all((1 << LANES) - 1);
    machine.parted[block]
}

/// Returns whether the result of a lane depends on which other lanes take part.
pub fn lanes_see_each_other(kernel: &Kernel) -> bool {
    kernel.code.iter().any(|inst| sees_others(&inst.op))
}

/// Returns whether lanes see each other's values in an instruction.
fn sees_others(op: &Op) -> bool {
    matches!(op, Op::Shfl { .. } | Op::Vote { .. } | Op::Ballot { .. } | Op::ActiveMask { .. })
}

/// Returns whether a path from the block's start reads the register before it writes it. It tries all paths.
pub fn read_before_written(kernel: &Kernel, block: usize, reg: Reg) -> bool {
    let mut seen = vec![false; kernel.blocks.len()];
    let mut next = vec![block];
    'blocks: while let Some(block) = next.pop() {
        if std::mem::replace(&mut seen[block], true) {
            continue;
        }
        let block = &kernel.blocks[block];
        for index in block.code.clone() {
            let op = &kernel.code[index as usize].op;
            let (mut read, mut written) = (false, false);
            reads(op, &mut |other| read |= other == reg);
            writes(op, &mut |other| written |= other == reg);
            if read {
                return true;
            }
            if written {
                continue 'blocks;
            }
        }
        match block.end {
            Terminator::Goto(to) => next.push(to.0 as usize),
            Terminator::Branch { guard, .. } if guard.reg == reg => return true,
            Terminator::Branch { then, otherwise, .. } => {
                next.extend([then.0 as usize, otherwise.0 as usize]);
            }
            _ => {}
        }
    }
    false
}
