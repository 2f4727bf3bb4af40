//! What is done to a kernel before it is lowered, so that more of its instructions are one step together, or none.

use std::collections::HashMap;

use vgpu_ptx::analysis;
use vgpu_ptx::ir::{Base, Inst, Kernel, Op, Operand, Order, Reg, Space, Ty};

/// The same kernel with loads in the order of their addresses, and conversions of halves that are not repeated.
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

/// Sorts loads that follow each other by base, in the order of the text, and by offset: so that those are neighbours whose
/// words are.
fn sort_loads(code: &mut [Inst]) {
    let mut rest = code;
    while !rest.is_empty() {
        let (mut bases, mut written) = (Vec::new(), Vec::new());
        let mut count = 0;
        for inst in rest.iter() {
            let Some((base, _)) = free_load(&inst.op) else { break };
            let mut clashes = written.contains(&base);
            analysis::writes(&inst.op, &mut |reg| {
                clashes |= reg == base || bases.contains(&reg) || written.contains(&reg);
                written.push(reg);
            });
            if clashes {
                break;
            }
            if !bases.contains(&base) {
                bases.push(base);
            }
            count += 1;
        }
        let (run, after) = std::mem::take(&mut rest).split_at_mut(count);
        run.sort_by_key(|inst| {
            free_load(&inst.op).map(|(base, offset)| (bases.iter().position(|&other| other == base), offset))
        });
        // What ended the run, unless it begins the next.
        let skip = usize::from(count == 0);
        rest = after.get_mut(skip..).unwrap_or_default();
    }
}

/// Moves the result of a conversion of a half that has been converted before in the block: kernels convert the scale of a column's
/// block for each row that it is multiplied with.
fn convert_once(code: &mut [Inst]) {
    // The half that a register holds: part of a word.
    let mut halves: HashMap<Reg, (Reg, usize)> = HashMap::new();
    let mut converted: HashMap<(Reg, usize), Reg> = HashMap::new();
    for inst in code {
        let mut found = None;
        if let Op::Cvt { to: Ty::F32, from: Ty::F16, sat: false, dst, src: Operand::Reg(src), .. } = inst.op
            && let Some(&half) = halves.get(&src)
        {
            match converted.get(&half) {
                Some(&first) => inst.op = Op::Mov { ty: Ty::F32, dst, src: Operand::Reg(first) },
                None => found = Some((half, dst)),
            }
        }
        analysis::writes(&inst.op, &mut |reg| {
            halves.retain(|half, (word, _)| *half != reg && *word != reg);
            converted.retain(|(word, _), result| *word != reg && *result != reg);
        });
        match &inst.op {
            Op::Unpack { dst, src: Operand::Reg(word), .. }
                if dst.len() == 2 && !dst.contains(&Some(*word)) =>
            {
                let parts = dst.iter().enumerate();
                halves.extend(parts.filter_map(|(index, half)| Some(((*half)?, (*word, index)))));
            }
            Op::Mov { dst, src: Operand::Reg(src), .. } => {
                if let Some(&half) = halves.get(src) {
                    halves.insert(*dst, half);
                }
            }
            _ => {}
        }
        converted.extend(found);
    }
}
