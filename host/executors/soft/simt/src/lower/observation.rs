//! Finds the loops in which lanes may wait for what other lanes of their warp do.
//!
//! Such a loop reads memory in a way that can observe other threads. Its turns are short. A loop that waits
//! in another way ends its turns when the fuel is used up. For each block of a cycle, one edge of the cycle
//! leads from that block or a later one back to it or to an earlier one. So it is enough to end turns at the
//! branches back whose range of the text contains an observation.

use vgpu_ptx::ir::{Kernel, Op, Order, Space};

/// Returns whether an instruction can observe what other threads do, or tells that the thread waits for them.
/// `reads` is the number of reads of each register: a result that nobody reads is no observation.
fn observes(op: &Op, reads: &[u32]) -> bool {
    match op {
        Op::Atom { dst, .. } => dst.is_some_and(|dst| reads[dst.0 as usize] != 0),
        Op::Ld { mem, .. } => {
            !matches!(mem.order, Order::Weak)
                && matches!(mem.space, Space::Global | Space::Shared | Space::Generic)
        }
        Op::Nanosleep { .. } => true,
        _ => false,
    }
}

/// Returns the number of observing blocks before each block of a kernel, and before its end. `reads` is the
/// number of reads of each register.
pub(super) fn observing_blocks(kernel: &Kernel, reads: &[u32]) -> Vec<u32> {
    let mut before = vec![0];
    let mut count = 0;
    for block in &kernel.blocks {
        let code = &kernel.code[block.code.start as usize..block.code.end as usize];
        count += u32::from(code.iter().any(|inst| observes(&inst.op, reads)));
        before.push(count);
    }
    before
}
