//! Numbers the lowered blocks. A barrier ends a block, so that a warp that waits at the barrier continues at
//! the start of a block. A block of the kernel therefore becomes one lowered block more than it has barriers.

use vgpu_ptx::ir::{BlockId, Kernel, Op, Terminator};

use super::error::Lowered;

fn is_barrier(op: &Op) -> bool {
    matches!(op, Op::Bar { .. } | Op::BarArrive { .. } | Op::BarRed { .. })
}

/// Returns, for each block of the kernel, the number of its first lowered block and the number of edges that
/// lead to it.
pub(super) fn number_blocks(kernel: &Kernel) -> Lowered<(Vec<u32>, Vec<u32>)> {
    if kernel.blocks.is_empty() {
        return Err("it has no code".into());
    }
    let mut numbers = Vec::with_capacity(kernel.blocks.len());
    let mut entries = vec![0u32; kernel.blocks.len()];
    // The entry is entered from outside.
    entries[0] = 1;
    let mut next = 0;
    for block in &kernel.blocks {
        numbers.push(next);
        let code =
            kernel.code.get(block.code.start as usize..block.code.end as usize).ok_or("no such code")?;
        next += 1 + code.iter().filter(|inst| is_barrier(&inst.op)).count() as u32;
        for BlockId(to) in successors(&block.end) {
            *entries.get_mut(to as usize).ok_or_else(|| format!("no block {to}"))? += 1;
        }
    }
    Ok((numbers, entries))
}

/// Returns the successors of a block of the kernel, by its terminator.
pub(super) fn successors(end: &Terminator) -> impl Iterator<Item = BlockId> {
    let targets = match *end {
        Terminator::Goto(to) => [Some(to), None],
        Terminator::Branch { then, otherwise, .. } => [Some(then), Some(otherwise)],
        Terminator::Return | Terminator::Trap | Terminator::StackOverflow | Terminator::BadCall => {
            [None, None]
        }
    };
    targets.into_iter().flatten()
}
