//! Checks a launch against its kernel, and runs the grid on the calling thread and on those of a pool.

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

/// Maximum number of threads in a block.
const MOST_THREADS: u64 = 1024;
/// Maximum stack of a thread in bytes: CUDA's limit of local memory, 512 KiB.
const MOST_STACK: u32 = 512 << 10;
/// Minimum expected time of a grid, in nanoseconds, for which a sleeping worker is woken. Waking takes about
/// as long.
const WORTH_WAKING: u64 = 60_000;
/// Minimum expected time of a grid, in nanoseconds, for which an awake worker is used.
const WORTH_SHARING: u64 = 5_000;

/// Statistics of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchStats {
    /// Number of blocks in the grid.
    pub blocks: u64,
    /// Number of warps in these blocks.
    pub warps: u64,
    /// Whether there is machine code for blocks of this shape. Without it, all instructions are interpreted.
    pub translated: bool,
    /// Number of instructions that machine code has passed to the interpreter: those without machine code,
    /// and those at which lanes wait or the launch ends early.
    pub handed: u64,
}

/// Receives the output of a launch: its statistics, and what kernels print.
pub trait Output {
    /// Receives the statistics of a launch that has completed or was ended by a fault.
    fn record_stats(&self, stats: &LaunchStats) {
        let _ = stats;
    }

    /// Receives the text that threads have printed, in the order in which their blocks ended. It is called on
    /// the thread that runs the launch.
    fn printf(&self, text: &str);
}

/// Shape, parameters and memory of a launch.
#[derive(Clone, Copy, Debug, Default)]
pub struct GridLaunch<'a> {
    /// Number of blocks by axis.
    pub grid: [u32; 3],
    /// Number of threads of a block by axis, at most 1024 in total.
    pub block: [u32; 3],
    /// Size of a block's dynamic shared memory in bytes.
    pub dynamic_shared: u32,
    /// Size of a thread's stack in bytes. Only kernels with calls have a stack, after their local memory.
    pub stack: u32,
    /// Heap for `malloc`. `None` makes every allocation fail.
    pub heap: Option<&'a Arc<Heap>>,
    /// Bytes of the parameters, at least as many as the kernel declares.
    pub params: &'a [u8],
    /// Whether the blocks may wait for each other, as in a cooperative launch.
    pub cooperative: bool,
    /// Device address of a cooperative grid's workspace, for `%envreg1` and `%envreg2`.
    pub workspace: u64,
}

/// Runs a grid to its end on this thread and on workers of the pool. Returns the first fault of any thread;
/// stores that were made before it remain.
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
    // This charge is for the calling thread. Other threads charge their own memory when they join.
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
    output.record_stats(&grid.stats());
    let (printed, fault) = grid.outcome();
    if !printed.is_empty() {
        output.printf(&printed);
    }
    fault.map_or(Ok(()), Err)
}

/// Returns the shared memory of a block in bytes, static and dynamic, with the alignment gap between them.
fn shared_bytes(program: &Program, launch: &GridLaunch<'_>) -> u32 {
    let attributes = program.attributes();
    if launch.dynamic_shared == 0 {
        attributes.shared_bytes
    } else {
        attributes.dynamic_shared_offset.saturating_add(launch.dynamic_shared).max(attributes.shared_bytes)
    }
}

/// Checks that a launch fits its kernel. Otherwise fails with [`Fault::BadLaunch`], before any thread has
/// run.
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
