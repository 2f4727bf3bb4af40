//! Numbers the lowered blocks. A barrier ends a block, so that a warp that waits at the barrier continues at
//! the start of a block. An instruction whose member mask differs between lanes is a block of its own, at
//! which lanes wait while those with another mask execute it. A block of the kernel therefore becomes one
//! lowered block, one more for each barrier, and two more for each of these instructions.

use vgpu_ptx::ir::{Block, BlockId, Inst, Kernel, Op, Terminator};

use super::error::Lowered;

fn is_barrier(op: &Op) -> bool {
    matches!(op, Op::Bar { .. } | Op::BarArrive { .. } | Op::BarRed { .. })
}

/// Returns the number of edges that lead to each block of the kernel, of which the entry has one more. Fails
/// if an edge leads nowhere.
pub(super) fn count_entries(kernel: &Kernel) -> Lowered<Vec<u32>> {
    let mut entries = vec![0u32; kernel.blocks.len()];
    // The entry is entered from outside.
    *entries.first_mut().ok_or("it has no code")? = 1;
    for block in &kernel.blocks {
        for BlockId(to) in successors(&block.end) {
            *entries.get_mut(to as usize).ok_or_else(|| format!("no block {to}"))? += 1;
        }
    }
    Ok(entries)
}

/// Returns the number of the first lowered block of each block of the kernel. `grouped` tells which
/// instructions are blocks of their own.
pub(super) fn number_blocks(kernel: &Kernel, grouped: impl Fn(&Op) -> bool) -> Vec<u32> {
    let mut next = 0;
    let number = |block: &Block| {
        let first = next;
        let code = &kernel.code[block.code.start as usize..block.code.end as usize];
        let more = |inst: &Inst| u32::from(is_barrier(&inst.op)) + 2 * u32::from(grouped(&inst.op));
        next += 1 + code.iter().map(more).sum::<u32>();
        first
    };
    kernel.blocks.iter().map(number).collect()
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
