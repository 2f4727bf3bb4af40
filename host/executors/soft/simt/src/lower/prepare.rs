//! Transforms a kernel before lowering, so that more of its PTX instructions can be fused or omitted.

use std::collections::{HashMap, HashSet};

use vgpu_ptx::analysis;
use vgpu_ptx::ir::{Base, Inst, Kernel, Op, Operand, Order, Reg, Space, Ty};

/// Returns the kernel with loads sorted by address, and without repeated conversions of halves.
pub(crate) fn prepare(kernel: &Kernel) -> Kernel {
    let mut kernel = kernel.clone();
    for block in &kernel.blocks {
        // Lowering refuses blocks whose code does not exist.
        if let Some(code) = kernel.code.get_mut(block.code.start as usize..block.code.end as usize) {
            sort_loads(code);
            convert_once(code);
        }
    }
    kernel
}

/// Returns base and offset of a load of a word from device memory that may be reordered with other loads.
fn free_load(op: &Op) -> Option<(Reg, i64)> {
    match op {
        Op::Ld { mem, .. } if mem.space == Space::Global && mem.order == Order::Weak => match mem.base {
            Base::Reg(base) if mem.ty.bytes() == 4 => Some((base, mem.offset)),
            _ => None,
        },
        _ => None,
    }
}

/// Sorts consecutive loads by their base, in the order of the text, and by their offset, so that loads of
/// neighbouring words become neighbours.
fn sort_loads(code: &mut [Inst]) {
    let mut rest = code;
    while !rest.is_empty() {
        // Bases are numbered in the order of the text.
        let (mut bases, mut written) = (HashMap::new(), HashSet::new());
        let mut count = 0;
        for inst in rest.iter() {
            let Some((base, _)) = free_load(&inst.op) else { break };
            let mut clashes = written.contains(&base);
            analysis::writes(&inst.op, &mut |reg| {
                clashes |= reg == base || bases.contains_key(&reg) || !written.insert(reg);
            });
            if clashes {
                break;
            }
            let next = bases.len();
            bases.entry(base).or_insert(next);
            count += 1;
        }
        let (run, after) = std::mem::take(&mut rest).split_at_mut(count);
        run.sort_by_key(|inst| free_load(&inst.op).map(|(base, offset)| (bases.get(&base).copied(), offset)));
        // Skips the instruction that ended the run, unless it starts the next one.
        let skip = usize::from(count == 0);
        rest = after.get_mut(skip..).unwrap_or_default();
    }
}

/// Eliminates common subexpressions of one kind: replaces repeated conversions of a half within a block by
/// moves of the first result. Kernels convert the scale of a column's block once for each row with which they
/// multiply it.
fn convert_once(code: &mut [Inst]) {
    let mut values = RegisterValues::default();
    // The word that a value is a half of, and which half it is.
    let mut halves: HashMap<RegisterValue, (RegisterValue, usize)> = HashMap::new();
    let mut converted: HashMap<(RegisterValue, usize), RegisterValue> = HashMap::new();
    for inst in code {
        let mut found = None;
        if let Op::Cvt { to: Ty::F32, from: Ty::F16, sat: false, dst, src: Operand::Reg(src), .. } = inst.op
            && let Some(&half) = halves.get(&values.current(src))
        {
            match converted.get(&half) {
                Some(&first) if values.current(first.reg) == first => {
                    inst.op = Op::Mov { ty: Ty::F32, dst, src: Operand::Reg(first.reg) };
                }
                _ => found = Some((half, dst)),
            }
        }
        // The value that the instruction reads, as it is before the instruction writes.
        let read = match &inst.op {
            Op::Unpack { src: Operand::Reg(src), .. } | Op::Mov { src: Operand::Reg(src), .. } => {
                Some(values.current(*src))
            }
            _ => None,
        };
        analysis::writes(&inst.op, &mut |reg| values.write(reg));
        match (&inst.op, read) {
            (Op::Unpack { dst, .. }, Some(word)) if dst.len() == 2 => {
                let parts = dst.iter().enumerate();
                halves.extend(
                    parts.filter_map(|(index, half)| Some((values.current((*half)?), (word, index)))),
                );
            }
            (Op::Mov { dst, .. }, Some(moved)) => {
                if let Some(&half) = halves.get(&moved) {
                    halves.insert(values.current(*dst), half);
                }
            }
            _ => {}
        }
        converted.extend(found.map(|(half, dst)| (half, values.current(dst))));
    }
}

/// A value of a register (a value number), valid from one write of the register to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct RegisterValue {
    reg: Reg,
    /// Number of earlier writes of the register.
    writes: u32,
}

/// Values that registers hold at a point of the block. Each write creates a new value, so that no knowledge
/// of the old one has to be removed.
#[derive(Debug, Default)]
struct RegisterValues(HashMap<Reg, u32>);

impl RegisterValues {
    /// Returns the value that a register holds now.
    fn current(&self, reg: Reg) -> RegisterValue {
        RegisterValue { reg, writes: self.0.get(&reg).copied().unwrap_or(0) }
    }

    /// Records a write of a register.
    fn write(&mut self, reg: Reg) {
        *self.0.entry(reg).or_insert(0) += 1;
    }
}
