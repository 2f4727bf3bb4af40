//! Launches: checks a launch against its kernel, and runs the grid on the calling thread and those of a pool.

mod grid;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use vgpu_arena::View;

use crate::control::Control;
use crate::fault::Fault;
use crate::heap::Heap;
use crate::machine::SHARED_BYTES;
use crate::pool::{ParallelWork, Pool};
use crate::program::Program;

use grid::Grid;

/// Threads of a block at most.
const MOST_THREADS: u64 = 1024;
/// Bytes of a thread's stack at most: as much as it may have of other local memory.
const MOST_STACK: u32 = 512 << 10;
/// Time in nanoseconds that a grid must take to be worth waking another thread, which takes as long to wake.
const WORTH_WAKING: u64 = 60_000;
/// The same where that thread is awake: the time that it takes to start.
const WORTH_SHARING: u64 = 5_000;

/// What a launch consisted of, and what ran it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchStats {
    /// Blocks of the grid.
    pub blocks: u64,
    /// Warps of these blocks.
    pub warps: u64,
    /// Whether there is machine code of the kernel for blocks of this shape. Without it, all steps were
    /// interpreted.
    pub translated: bool,
    /// Number of steps that machine code has handed to the interpreter: those without a translation, and
    /// those at which lanes wait or the launch ends early.
    pub handed: u64,
}

/// Receives the output of kernels.
pub trait Output {
    /// Takes the figures of a launch that has run, or was ended by a fault.
    fn record_stats(&self, tally: &LaunchStats) {
        let _ = tally;
    }

    /// Takes text that threads have printed, in the order in which their blocks ended. The thread that runs
    /// the launch calls it.
    fn printf(&self, text: &str);
}

/// The shape, parameters and memory of a launch.
#[derive(Clone, Copy, Debug)]
pub struct GridLaunch<'a> {
    /// Blocks by axis.
    pub grid: [u32; 3],
    /// Threads of a block by axis, at most 1024 altogether.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory of a block.
    pub dynamic_shared: u32,
    /// Bytes of the stack of a thread, which kernels with calls have behind their local memory.
    pub stack: u32,
    /// The heap of `malloc`. Without one nothing can be allocated.
    pub heap: Option<&'a Arc<Heap>>,
    /// The parameters, at least as many bytes as the kernel has.
    pub params: &'a [u8],
    /// Whether all blocks must be able to wait for each other.
    pub cooperative: bool,
    /// Device address of a cooperative grid's workspace, for `%envreg1` and `%envreg2`.
    pub workspace: u64,
}

/// Runs a grid to its end. The calling thread takes part.
pub fn launch_grid(
    program: &Program,
    launch: &GridLaunch<'_>,
    memory: &View,
    pool: &Pool,
    control: &Control,
    output: &dyn Output,
) -> Result<(), Fault> {
    check(program, launch)?;
    let grid = Arc::new(Grid::new(program, launch, shared_bytes(program, launch), memory, control));
    // This is for the calling thread. Others take part as far as there is memory for them.
    if !control.charge(grid.cost(if launch.cooperative { grid.blocks } else { 1 })) {
        return Err(Fault::OutOfMemory { begun: false });
    }
    if launch.cooperative {
        grid.run_cooperative();
    } else {
        let expected = program.profile.block_time.load(Ordering::Relaxed).saturating_mul(grid.blocks);
        let first = expected == 0;
        let worth = if pool.is_awake() { WORTH_SHARING } else { WORTH_WAKING };
        if grid.blocks > 1 && pool.threads() > 1 && (first || expected >= worth) {
            pool.execute(Arc::clone(&grid) as Arc<dyn ParallelWork>);
        } else {
            grid.run_pieces(&|| true);
        }
    }
    output.record_stats(&grid.tally());
    let (printed, fault) = grid.outcome();
    if !printed.is_empty() {
        output.printf(&printed);
    }
    fault.map_or(Ok(()), Err)
}

/// Bytes of shared memory of a block of a launch.
fn shared_bytes(program: &Program, launch: &GridLaunch<'_>) -> u32 {
    let attributes = program.attributes();
    if launch.dynamic_shared == 0 {
        attributes.shared_bytes
    } else {
        attributes.dynamic_shared_offset.saturating_add(launch.dynamic_shared).max(attributes.shared_bytes)
    }
}

/// Checks that a launch fits its kernel.
fn check(program: &Program, launch: &GridLaunch<'_>) -> Result<(), Fault> {
    let attributes = program.attributes();
    let product =
        |shape: [u32; 3]| shape.iter().try_fold(1u64, |all, &axis| all.checked_mul(u64::from(axis)));
    let threads = product(launch.block).unwrap_or(u64::MAX);
    if product(launch.grid).is_none_or(|blocks| blocks == 0) {
        return Err(Fault::BadLaunch("the grid has no blocks, or too many"));
    }
    if threads == 0 || threads > MOST_THREADS {
        return Err(Fault::BadLaunch("a block has no threads, or too many"));
    }
    if attributes.required_threads.is_some_and(|required| required != launch.block) {
        return Err(Fault::BadLaunch("the kernel requires another shape of blocks"));
    }
    if launch.params.len() < attributes.param_bytes as usize {
        return Err(Fault::BadLaunch("parameters are missing"));
    }
    if attributes.calls && launch.stack > MOST_STACK {
        return Err(Fault::BadLaunch("too much stack"));
    }
    if shared_bytes(program, launch) > SHARED_BYTES {
        return Err(Fault::BadLaunch("too much shared memory"));
    }
    Ok(())
}
