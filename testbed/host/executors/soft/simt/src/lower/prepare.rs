//! What is done to a kernel before it is lowered, so that more of its instructions are one step together, or
//! none.

use std::collections::{HashMap, HashSet};

use vgpu_ptx::analysis;
use vgpu_ptx::ir::{Base, Inst, Kernel, Op, Operand, Order, Reg, Space, Ty};

/// The same kernel with loads in the order of their addresses, and conversions of halves that are not
/// repeated.
pub(crate) fn prepare(kernel: &Kernel) -> Kernel {
    let mut kernel = kernel.clone();
    for block in &kernel.blocks {
        // Lowering refuses blocks of code that is not there.
        if let Some(code) = kernel.code.get_mut(block.code.start as usize..block.code.end as usize) {
            sort_loads(code);
            convert_once(code);
        }
    }
    kernel
}

/// Base and offset of a load of words from device memory that others may overtake.
fn free_load(op: &Op) -> Option<(Reg, i64)> {
    match op {
        Op::Ld { mem, .. } if mem.space == Space::Global && mem.order == Order::Weak => match mem.base {
            Base::Reg(base) if mem.ty.bytes() == 4 => Some((base, mem.offset)),
            _ => None,
        },
        _ => None,
    }
}

/// Sorts loads that follow each other by base, in the order of the text, and by offset: so that those are
/// neighbours whose words are.
fn sort_loads(code: &mut [Inst]) {
    let mut rest = code;
    while !rest.is_empty() {
        // Bases in the order of the text.
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
        // What ended the run, unless it begins the next.
        let skip = usize::from(count == 0);
        rest = after.get_mut(skip..).unwrap_or_default();
    }
}

/// Moves the result of a conversion of a half that has been converted before in the block: kernels convert
/// the scale of a column's block for each row that it is multiplied with.
fn convert_once(code: &mut [Inst]) {
    let mut values = Values::default();
    // The half that a value is: part of a word.
    let mut halves: HashMap<Value, (Value, usize)> = HashMap::new();
    let mut converted: HashMap<(Value, usize), Value> = HashMap::new();
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
        // What the instruction reads, as it is before it writes.
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

/// What a register holds between two writes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Value {
    reg: Reg,
    /// How often the register had been written.
    writes: u32,
}

/// The values that registers hold now. Nothing need be forgotten when one is written: what was known is of
/// another value.
#[derive(Debug, Default)]
struct Values(HashMap<Reg, u32>);

impl Values {
    /// The value that a register holds now.
    fn current(&self, reg: Reg) -> Value {
        Value { reg, writes: self.0.get(&reg).copied().unwrap_or(0) }
    }

    /// Notes that a register is written.
    fn write(&mut self, reg: Reg) {
        *self.0.entry(reg).or_insert(0) += 1;
    }
}
