//! A running grid: its blocks, which threads claim until none is left, and the memory that each thread uses.

#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Instant;

use crossbeam_utils::CachePadded;
use vgpu_arena::{View, Window};
use vgpu_ptx::Halt;

use super::{GridLaunch, LaunchStats};
use crate::block::{Block, BlockStatus};
use crate::control::Control;
use crate::fault::{Fault, Site};
use crate::heap::Heap;
use crate::machine::{
    Context, Env, GridShape, LANES, LocalMemory, MOST_TEXT, SHARED_BYTES, SharedMemory, Variant, coordinates,
};
use crate::pool::ParallelWork;
use crate::program::{LaunchProfile, Program, ProgramInner};

/// Maximum size of registers and of local memory, in bytes each, that a thread keeps across launches. Larger
/// memory is freed at once.
const MOST_KEPT: u64 = 1 << 20;

/// Number of blocks that a thread runs between two polls of the control. Before other blocks it only checks
/// whether the launch was stopped.
const POLL_BLOCKS: u64 = 64;

/// Expected time in nanoseconds of the blocks that a thread claims at once.
const CLAIM_NANOS: u64 = 100_000;

/// Divisor that limits a claim: a thread claims at most this fraction of the remaining blocks at once, so
/// that all threads end at about the same time.
const CLAIM_FRACTION: u64 = 16;

/// A grid that is being executed, shared by all threads that run its blocks.
pub(super) struct Grid {
    program: Arc<ProgramInner>,
    profile: Arc<LaunchProfile>,
    shape: GridShape,
    dynamic_shared: u32,
    shared_bytes: u32,
    /// Local memory of a thread in bytes, with its stack.
    local_bytes: u32,
    heap: Option<Arc<Heap>>,
    params: Box<[u8]>,
    workspace: u64,
    view: View,
    control: Control,
    /// Number of blocks in the grid.
    pub(super) blocks: u64,
    /// Index of the first block that no thread has claimed; `blocks` or more once all are claimed.
    next: CachePadded<AtomicU64>,
    /// Whether a fault has ended the launch.
    over: AtomicBool,
    /// Thread that launched the grid, whose memory is charged from the start.
    caller: ThreadId,
    /// Memory that threads have released and that is still charged. Each entry is the number of warp splits,
    /// besides the warps, that it has room for.
    free: Mutex<Vec<usize>>,
    /// Whether the ledger or the host refused memory for another thread. The current threads then run the
    /// remaining blocks.
    unpaid: AtomicBool,
    /// Number of instructions that machine code has passed to the interpreter.
    handed: AtomicU64,
    outcome: Mutex<LaunchOutcome>,
}

/// Printed text and fault of the blocks that have run.
#[derive(Default)]
struct LaunchOutcome {
    fault: Option<Fault>,
    printed: String,
}

/// Memory in which a thread runs blocks, kept across launches.
struct ThreadScratch {
    blocks: Vec<Block>,
    windows: Vec<Window>,
    shared: Vec<SharedMemory>,
    local: Vec<LocalMemory>,
    context: Option<Box<Context>>,
}

impl ThreadScratch {
    const EMPTY: Self = Self {
        blocks: Vec::new(),
        windows: Vec::new(),
        shared: Vec::new(),
        local: Vec::new(),
        context: None,
    };
}

/// Parts of a thread's scratch memory that the blocks it runs share.
struct BlockScratch<'a> {
    local: &'a mut [LocalMemory],
    windows: &'a mut [Window],
    context: &'a mut Context,
}

impl BlockScratch<'_> {
    /// Narrows the scratch memory to one block, with the local memory of its warps.
    fn for_warps(&mut self, warps: Range<usize>) -> BlockScratch<'_> {
        BlockScratch { local: &mut self.local[warps], windows: self.windows, context: self.context }
    }
}

thread_local! {
    static SCRATCH: RefCell<ThreadScratch> = const { RefCell::new(ThreadScratch::EMPTY) };
}

/// Returns the local memory of a thread in bytes, with its stack.
fn local_bytes(program: &Program, launch: &GridLaunch<'_>) -> u32 {
    let attributes = program.attributes();
    attributes.local_bytes.saturating_add(if attributes.calls { launch.stack } else { 0 })
}

impl Grid {
    /// Creates a grid of which no block has run. Blocks have `shared_bytes` of shared memory.
    pub(super) fn new(
        program: &Program,
        launch: &GridLaunch<'_>,
        shared_bytes: u32,
        memory: &View,
        control: &Control,
    ) -> Self {
        Self {
            program: Arc::clone(&program.inner),
            profile: Arc::clone(&program.profile),
            shape: GridShape { grid: launch.grid, block: launch.block },
            dynamic_shared: launch.dynamic_shared,
            shared_bytes,
            local_bytes: local_bytes(program, launch),
            heap: launch.heap.cloned(),
            params: launch.params[..program.attributes().param_bytes as usize].into(),
            workspace: launch.workspace,
            view: memory.clone(),
            control: control.clone(),
            blocks: launch.grid.iter().map(|&blocks| u64::from(blocks)).product(),
            next: CachePadded::default(),
            over: AtomicBool::new(false),
            caller: thread::current().id(),
            free: Mutex::default(),
            unpaid: AtomicBool::new(false),
            handed: AtomicU64::new(0),
            outcome: Mutex::new(LaunchOutcome::default()),
        }
    }

    /// Takes the text that the blocks have printed, and the fault that ended the launch.
    pub(super) fn outcome(&self) -> (String, Option<Fault>) {
        let mut outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        (std::mem::take(&mut outcome.printed), outcome.fault.take())
    }

    /// Returns the statistics of the launch so far.
    pub(super) fn stats(&self) -> LaunchStats {
        LaunchStats {
            blocks: self.blocks,
            warps: self.blocks.saturating_mul(self.warps() as u64),
            translated: self.variant().code.is_native(),
            handed: self.handed.load(Ordering::Relaxed),
        }
    }

    fn variant(&self) -> &Variant {
        self.program.variant(self.shape.block)
    }

    /// Returns the number of warps in a block.
    fn warps(&self) -> usize {
        let [x, y, z] = self.shape.block;
        (x * y * z).div_ceil(LANES as u32) as usize
    }

    /// Returns the host memory in bytes that `count` simultaneous blocks take.
    pub(super) fn cost(&self, count: u64) -> u64 {
        let warp = Block::warp_cost(self.variant()) + LocalMemory::cost(self.local_bytes);
        count.saturating_mul(self.warps() as u64 * warp + u64::from(SHARED_BYTES))
    }

    fn on_caller(&self) -> bool {
        thread::current().id() == self.caller
    }

    /// Records that the memory for this thread was refused. If this is the caller's thread, the launch ends;
    /// otherwise the current threads run the remaining blocks.
    fn lack_memory(&self) {
        if self.on_caller() {
            let begun = self.next.load(Ordering::Relaxed) > 0;
            self.finish(&mut String::new(), Some(Fault::OutOfMemory { begun }));
        } else {
            self.unpaid.store(true, Ordering::Relaxed);
        }
    }

    /// Returns whether the launch still has blocks that no thread has claimed.
    fn has_more(&self) -> bool {
        !self.over.load(Ordering::Relaxed) && self.next.load(Ordering::Relaxed) < self.blocks
    }

    /// Claims a range of blocks for this thread. The range is empty if no block is left.
    fn claim_blocks(&self) -> Range<u64> {
        let left = self.blocks.saturating_sub(self.next.load(Ordering::Relaxed));
        let time = self.profile.block_time.load(Ordering::Relaxed);
        // A claim is one block until the kernel's blocks have been timed.
        let quick = CLAIM_NANOS.checked_div(time).unwrap_or(1);
        let count = (left / CLAIM_FRACTION).min(quick).max(1);
        let first = self.next.fetch_add(count, Ordering::Relaxed).min(self.blocks);
        first..(first + count).min(self.blocks)
    }

    /// Calls `act` with scratch memory for `count` blocks that run at the same time. If the ledger or the
    /// host refuses the memory, records that instead.
    fn with_scratch(
        &self,
        count: usize,
        act: impl FnOnce(&mut [Block], &mut [SharedMemory], BlockScratch<'_>),
    ) {
        let free = || self.free.lock().unwrap_or_else(PoisonError::into_inner);
        // Workers come and go often in a long launch: the charge that one leaves serves the next one.
        let known = if self.on_caller() { Some(0) } else { free().pop() };
        let Some(splits) = known.or_else(|| self.control.charge(self.cost(count as u64)).then_some(0)) else {
            return self.lack_memory();
        };
        SCRATCH.with_borrow_mut(|scratch| {
            let variant = self.variant();
            scratch.blocks.truncate(count.max(1));
            scratch.blocks.resize_with(count, Block::new);
            scratch.shared.truncate(count.max(1));
            let missing = count - scratch.shared.len();
            scratch.shared.extend((0..missing).map_while(|_| SharedMemory::new()));
            for shared in &mut scratch.shared {
                shared.reset(self.shared_bytes);
            }
            scratch.windows.clear();
            self.profile.load_windows(self.shape.block, &mut scratch.windows);
            scratch.windows.resize_with(variant.windows, Window::default);
            scratch.local.resize_with((count * self.warps()).max(scratch.local.len()), LocalMemory::default);
            let local_bytes = self.local_bytes;
            let mut local = scratch.local.iter_mut().take(count * self.warps());
            let there = scratch.shared.len() == count && local.all(|local| local.reset(local_bytes));
            if there {
                // Of several blocks that run together, each charges its own splits: no other thread takes
                // them over.
                scratch.blocks[0].allow_splits(splits);
                let context = scratch.context.get_or_insert_with(Context::new);
                let block_scratch =
                    BlockScratch { local: &mut scratch.local, windows: &mut scratch.windows, context };
                act(&mut scratch.blocks, &mut scratch.shared, block_scratch);
                if let Some(context) = &mut scratch.context {
                    context.mode.restore();
                }
                self.profile.store_windows(self.shape.block, &scratch.windows);
                free().push(scratch.blocks[0].allowed_splits());
            } else {
                self.lack_memory();
            }
            if self.warps() as u64 * LocalMemory::cost(local_bytes) > MOST_KEPT || count > 1 {
                scratch.local = Vec::new();
            }
            if scratch.blocks[0].splits() as u64 * Block::warp_cost(variant) > MOST_KEPT || count > 1 {
                scratch.blocks.iter_mut().for_each(Block::clear);
                scratch.blocks.truncate(1);
                scratch.shared.truncate(1);
            }
        });
    }

    /// Creates the environment of a block. The caller sets the block's index.
    fn env<'a>(
        &'a self,
        shared: &'a mut SharedMemory,
        BlockScratch { local, windows, context }: BlockScratch<'a>,
        cooperative: bool,
    ) -> Env<'a> {
        let variant = self.variant();
        Env {
            shape: self.shape,
            block: [0; 3],
            blocks: &variant.blocks,
            tables: &variant.tables,
            params: &self.params,
            dynamic_shared: self.dynamic_shared,
            workspace: self.workspace,
            view: &self.view,
            windows: self.view.windows(windows),
            context,
            shared,
            heap: self.heap.as_deref(),
            local,
            control: &self.control,
            over: &self.over,
            printed: String::new(),
            handed: 0,
            cooperative,
            slept: false,
            barrier: 0,
            barrier_line: 0,
            fault: None,
        }
    }

    /// Checks whether the launch must end, before block number `count` of this thread. A kernel without loops
    /// never polls the control itself.
    fn check(&self, count: u64, block: [u32; 3]) -> Result<(), Fault> {
        let halt = if count % POLL_BLOCKS == POLL_BLOCKS - 1 {
            self.control.poll(POLL_BLOCKS)
        } else if self.control.stopped() {
            Err(Halt::Stopped)
        } else {
            Ok(())
        };
        halt.map_err(|halt| Fault::halted(halt, Site { block, ..Site::default() }))
    }

    /// Records the fault of a block, which ends the launch, and appends the text that it has printed.
    fn finish(&self, printed: &mut String, fault: Option<Fault>) {
        if fault.is_none() && printed.is_empty() {
            return;
        }
        let mut outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        if outcome.printed.len() + printed.len() <= MOST_TEXT {
            outcome.printed.push_str(printed);
        }
        printed.clear();
        if let Some(fault) = fault {
            // Other blocks stop because of the first fault. Their stop is not a fault of its own.
            if outcome.fault.is_none() {
                outcome.fault = Some(fault);
            }
            self.over.store(true, Ordering::Relaxed);
        }
    }

    /// Runs all blocks in turn on this thread, because they may wait for each other.
    pub(super) fn run_cooperative(&self) {
        let variant = self.variant();
        let count = self.blocks as usize;
        self.with_scratch(count, |blocks, shared, mut block_scratch| {
            let mut done = vec![false; count];
            let mut started = false;
            while !done.iter().all(|done| *done) {
                for index in 0..count {
                    if done[index] {
                        continue;
                    }
                    let warps = self.warps();
                    let block_scratch = block_scratch.for_warps(index * warps..(index + 1) * warps);
                    let mut env = self.env(&mut shared[index], block_scratch, true);
                    env.block = coordinates(index as u32, self.shape.grid);
                    let status = self.check(POLL_BLOCKS - 1, env.block).and_then(|()| {
                        if !started {
                            blocks[index].prepare(variant, &mut env)?;
                            blocks[index].start(variant, &env);
                        }
                        blocks[index].run_warps(variant, &mut env)
                    });
                    env.let_others_run();
                    done[index] = status != Ok(BlockStatus::Preempted);
                    self.handed.fetch_add(env.handed, Ordering::Relaxed);
                    let mut printed = std::mem::take(&mut env.printed);
                    self.finish(&mut printed, status.err());
                    if status.is_err() {
                        return;
                    }
                }
                started = true;
            }
        });
    }
}

impl ParallelWork for Grid {
    fn run_pieces(&self, stay: &dyn Fn() -> bool) {
        let variant = self.variant();
        if !self.has_more() {
            return;
        }
        self.with_scratch(1, |blocks, shared, block_scratch| {
            let mut env = self.env(&mut shared[0], block_scratch, false);
            let block = &mut blocks[0];
            match block.prepare(variant, &mut env) {
                Ok(()) => {}
                Err(Fault::OutOfMemory { .. }) => return self.lack_memory(),
                Err(fault) => return self.finish(&mut String::new(), Some(fault)),
            }
            let (begin, mut count) = (Instant::now(), 0);
            let mut claimed = 0..0;
            while !self.over.load(Ordering::Relaxed) {
                if claimed.is_empty() && stay() {
                    claimed = self.claim_blocks();
                }
                let Some(index) = claimed.next() else { break };
                let [x, y, _] = self.shape.grid.map(u64::from);
                env.block = [(index % x) as u32, (index / x % y) as u32, (index / x / y) as u32];
                let result = self.check(count, env.block).and_then(|()| {
                    block.start(variant, &env);
                    loop {
                        match block.run_warps(variant, &mut env) {
                            Ok(BlockStatus::Preempted) => env.let_others_run(),
                            Ok(BlockStatus::Done) => break Ok(()),
                            Err(fault) => break Err(fault),
                        }
                    }
                });
                if result.is_err() || !env.printed.is_empty() {
                    self.finish(&mut std::mem::take(&mut env.printed), result.err());
                }
                count += 1;
            }
            self.handed.fetch_add(env.handed, Ordering::Relaxed);
            if let Some(mean) = (begin.elapsed().as_nanos() as u64).checked_div(count) {
                let before = self.profile.block_time.load(Ordering::Relaxed);
                let mean = if before == 0 { mean } else { (before * 7 + mean) / 8 };
                self.profile.block_time.store(mean.max(1), Ordering::Relaxed);
            }
        });
    }

    fn is_open(&self) -> bool {
        self.has_more() && !self.unpaid.load(Ordering::Relaxed)
    }
}
