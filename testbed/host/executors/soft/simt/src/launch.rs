//! Launches: a grid's blocks, run here and by the pool's threads.

#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Instant;

use vgpu_arena::{View, Window};
use vgpu_ptx::Halt;

use crate::block::{Block, Turn};
use crate::control::Control;
use crate::env::{Env, Shape, coordinates};
use crate::fault::{Fault, Site};
use crate::machine::LANES;
use crate::memory::{LocalMemory, SHARED_BYTES, SharedMemory};
use crate::pool::{Pool, Work};
use crate::printf::{MOST_TEXT, Output};
use crate::program::{Inner, Program, Variant};

/// Threads of a block at most.
const MOST_THREADS: u64 = 1024;
/// What a thread of the pool keeps of registers and of local memory from launch to launch, bytes: more goes back at once.
const KEPT: u64 = 1 << 20;
/// A grid that takes less than this is not worth another thread, which takes as long to wake, in nanoseconds.
const WORTH_WAKING: u64 = 60_000;
/// The same where that thread is awake: what it costs it to begin.
const WORTH_SHARING: u64 = 20_000;

/// Blocks that a thread runs between two looks at the clock; at whether the launch is stopped it looks before each.
const LOOK_BLOCKS: u64 = 64;

/// What a grid is launched with.
#[derive(Clone, Copy, Debug)]
pub struct Launch<'a> {
    /// Blocks by axis.
    pub grid: [u32; 3],
    /// Threads of a block by axis: at most 1024 altogether.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory of a block.
    pub dynamic_shared: u32,
    /// The parameters, at least as many bytes as the kernel has.
    pub params: &'a [u8],
    /// Whether all blocks must be able to wait for each other.
    pub cooperative: bool,
    /// Device address of a cooperative grid's workspace, for `%envreg1` and `%envreg2`.
    pub workspace: u64,
}

/// Runs a grid to its end. The calling thread takes part.
pub fn run(
    program: &Program,
    launch: &Launch<'_>,
    memory: &View,
    pool: &Pool,
    control: &Control,
    output: &dyn Output,
) -> Result<(), Fault> {
    let attributes = program.attributes();
    check(program, launch)?;
    let blocks = launch.grid.iter().map(|&blocks| u64::from(blocks)).product();
    let grid = Arc::new(Grid {
        program: Arc::clone(&program.inner),
        shape: Shape { grid: launch.grid, block: launch.block },
        dynamic_shared: launch.dynamic_shared,
        shared_bytes: shared_bytes(program, launch),
        params: launch.params[..attributes.param_bytes as usize].into(),
        workspace: launch.workspace,
        view: memory.clone(),
        control: control.clone(),
        blocks,
        next: AtomicU64::new(0),
        over: AtomicBool::new(false),
        caller: thread::current().id(),
        free: Mutex::default(),
        unpaid: AtomicBool::new(false),
        outcome: Mutex::new(Outcome::default()),
    });
    // For this thread; others take part as far as there is memory for them.
    if !control.pay(grid.cost(if launch.cooperative { blocks } else { 1 })) {
        return Err(Fault::OutOfMemory { begun: false });
    }
    if launch.cooperative {
        grid.run_cooperative();
    } else {
        let expected = program.inner.block_time.load(Ordering::Relaxed).saturating_mul(blocks);
        let first = expected == 0;
        let worth = if pool.is_awake() { WORTH_SHARING } else { WORTH_WAKING };
        if blocks > 1 && pool.threads() > 1 && (first || expected >= worth) {
            pool.run(Arc::clone(&grid) as Arc<dyn Work>);
        } else {
            grid.work(&|| true);
        }
    }
    let mut outcome = grid.outcome.lock().unwrap_or_else(PoisonError::into_inner);
    if !outcome.printed.is_empty() {
        output.printf(&std::mem::take(&mut outcome.printed));
    }
    outcome.fault.take().map_or(Ok(()), Err)
}

fn shared_bytes(program: &Program, launch: &Launch<'_>) -> u32 {
    let attributes = program.attributes();
    if launch.dynamic_shared == 0 {
        attributes.shared_bytes
    } else {
        attributes.dynamic_shared_offset.saturating_add(launch.dynamic_shared).max(attributes.shared_bytes)
    }
}

/// Whether the launch fits the kernel.
fn check(program: &Program, launch: &Launch<'_>) -> Result<(), Fault> {
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
    if shared_bytes(program, launch) > SHARED_BYTES {
        return Err(Fault::BadLaunch("too much shared memory"));
    }
    Ok(())
}

/// A grid that is running.
struct Grid {
    program: Arc<Inner>,
    shape: Shape,
    dynamic_shared: u32,
    shared_bytes: u32,
    params: Box<[u8]>,
    workspace: u64,
    view: View,
    control: Control,
    /// How many blocks there are, and the next that nobody has taken.
    blocks: u64,
    next: AtomicU64,
    /// A fault has ended the launch.
    over: AtomicBool,
    /// Whose memory is paid for from the start.
    caller: ThreadId,
    /// Memory that was paid for by threads that have left: how many parts of divergent warps there may be in it besides the warps.
    free: Mutex<Vec<usize>>,
    /// There is no memory for one more thread: those that take part do the rest.
    unpaid: AtomicBool,
    outcome: Mutex<Outcome>,
}

#[derive(Default)]
struct Outcome {
    fault: Option<Fault>,
    printed: String,
}

/// What a thread needs to run blocks, kept from launch to launch.
struct Scratch {
    blocks: Vec<Block>,
    windows: Vec<Window>,
    shared: Vec<SharedMemory>,
    local: Vec<LocalMemory>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> =
        const { RefCell::new(Scratch { blocks: Vec::new(), windows: Vec::new(), shared: Vec::new(), local: Vec::new() }) };
}

impl Grid {
    fn variant(&self) -> &Variant {
        self.program.variant(self.shape.block)
    }

    fn warps(&self) -> usize {
        let [x, y, z] = self.shape.block;
        (x * y * z).div_ceil(LANES as u32) as usize
    }

    /// Bytes of the host's memory for `count` blocks at once.
    fn cost(&self, count: u64) -> u64 {
        let warp = Block::warp_cost(self.variant()) + LocalMemory::cost(self.program.attributes.local_bytes);
        count.saturating_mul(self.warps() as u64 * warp + u64::from(SHARED_BYTES))
    }

    fn on_caller(&self) -> bool {
        thread::current().id() == self.caller
    }

    /// This thread has no memory to take part. If it is the caller's the launch ends, else those that take part do it alone.
    fn lack_memory(&self) {
        if self.on_caller() {
            let begun = self.next.load(Ordering::Relaxed) > 0;
            self.finish(&mut String::new(), Some(Fault::OutOfMemory { begun }));
        } else {
            self.unpaid.store(true, Ordering::Relaxed);
        }
    }

    /// Whether there are blocks that nobody has taken, and that are to be run.
    fn has_more(&self) -> bool {
        !self.over.load(Ordering::Relaxed) && self.next.load(Ordering::Relaxed) < self.blocks
    }

    /// Calls `act` with an environment made of a thread's scratch memory, for `count` blocks at once, if there is memory for that.
    fn with_scratch(
        &self,
        count: usize,
        act: impl FnOnce(&mut [Block], &mut [SharedMemory], &mut [LocalMemory], &mut [Window]),
    ) {
        let free = || self.free.lock().unwrap_or_else(PoisonError::into_inner);
        // Workers come and go often in a long launch: what one has left is the next one's.
        let known = if self.on_caller() { Some(0) } else { free().pop() };
        let Some(parts) = known.or_else(|| self.control.pay(self.cost(count as u64)).then_some(0)) else {
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
            scratch.windows.resize_with(variant.windows, Window::default);
            scratch.local.resize_with((count * self.warps()).max(scratch.local.len()), LocalMemory::default);
            let local_bytes = self.program.attributes.local_bytes;
            let mut local = scratch.local.iter_mut().take(count * self.warps());
            let there = scratch.shared.len() == count && local.all(|local| local.reset(local_bytes));
            if there {
                // Of several blocks that are under way together, which no other thread takes over, each pays for its own.
                scratch.blocks[0].allow_parts(parts);
                act(&mut scratch.blocks, &mut scratch.shared, &mut scratch.local, &mut scratch.windows);
                free().push(scratch.blocks[0].allowed_parts());
            } else {
                self.lack_memory();
            }
            if self.warps() as u64 * LocalMemory::cost(local_bytes) > KEPT || count > 1 {
                scratch.local = Vec::new();
            }
            if scratch.blocks[0].parts() as u64 * Block::warp_cost(variant) > KEPT || count > 1 {
                scratch.blocks.iter_mut().for_each(Block::clear);
                scratch.blocks.truncate(1);
                scratch.shared.truncate(1);
            }
        });
    }

    fn env<'a>(
        &'a self,
        shared: &'a mut SharedMemory,
        local: &'a mut [LocalMemory],
        windows: &'a mut [Window],
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
            windows,
            shared,
            local,
            control: &self.control,
            over: &self.over,
            printed: String::new(),
            cooperative,
            barrier: 0,
            barrier_line: 0,
            meet_anyway: None,
            fault: None,
        }
    }

    /// Looks at the control before a block, the `count`th of this thread: a kernel without a loop never does.
    fn look(&self, count: u64, block: [u32; 3]) -> Result<(), Fault> {
        let halt = if count % LOOK_BLOCKS == LOOK_BLOCKS - 1 {
            self.control.poll(LOOK_BLOCKS)
        } else if self.control.stopped() {
            Err(Halt::Stopped)
        } else {
            Ok(())
        };
        halt.map_err(|halt| Fault::halted(halt, Site { block, ..Site::default() }))
    }

    /// Takes what a block has left: its fault, its text.
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
            // Other blocks stop because of the first fault; that they did is none.
            if outcome.fault.is_none() {
                outcome.fault = Some(fault);
            }
            self.over.store(true, Ordering::Relaxed);
        }
    }

    /// All blocks by turns, on this thread alone: they may wait for each other.
    fn run_cooperative(&self) {
        let variant = self.variant();
        let count = self.blocks as usize;
        self.with_scratch(count, |blocks, shared, local, windows| {
            let mut done = vec![false; count];
            let mut started = false;
            while !done.iter().all(|done| *done) {
                for index in 0..count {
                    if done[index] {
                        continue;
                    }
                    let warps = self.warps();
                    let local = &mut local[index * warps..(index + 1) * warps];
                    let mut env = self.env(&mut shared[index], local, windows, true);
                    env.block = coordinates(index as u32, self.shape.grid);
                    let turn = self.look(LOOK_BLOCKS - 1, env.block).and_then(|()| {
                        if !started {
                            blocks[index].prepare(variant, &mut env)?;
                            blocks[index].start(variant, &env);
                        }
                        blocks[index].run(variant, &mut env)
                    });
                    done[index] = turn != Ok(Turn::Preempted);
                    let mut printed = std::mem::take(&mut env.printed);
                    self.finish(&mut printed, turn.err());
                    if turn.is_err() {
                        return;
                    }
                }
                started = true;
            }
        });
    }
}

impl Work for Grid {
    fn work(&self, stay: &dyn Fn() -> bool) {
        let variant = self.variant();
        if !self.has_more() {
            return;
        }
        self.with_scratch(1, |blocks, shared, local, windows| {
            let mut env = self.env(&mut shared[0], local, windows, false);
            let block = &mut blocks[0];
            match block.prepare(variant, &mut env) {
                Ok(()) => {}
                Err(Fault::OutOfMemory { .. }) => return self.lack_memory(),
                Err(fault) => return self.finish(&mut String::new(), Some(fault)),
            }
            let (begin, mut count) = (Instant::now(), 0);
            while !self.over.load(Ordering::Relaxed) && stay() {
                let index = self.next.fetch_add(1, Ordering::Relaxed);
                if index >= self.blocks {
                    break;
                }
                let [x, y, _] = self.shape.grid.map(u64::from);
                env.block = [(index % x) as u32, (index / x % y) as u32, (index / x / y) as u32];
                let result = self.look(count, env.block).and_then(|()| {
                    block.start(variant, &env);
                    loop {
                        match block.run(variant, &mut env) {
                            Ok(Turn::Preempted) => {}
                            Ok(Turn::Done) => break Ok(()),
                            Err(fault) => break Err(fault),
                        }
                    }
                });
                let mut printed = std::mem::take(&mut env.printed);
                self.finish(&mut printed, result.err());
                count += 1;
            }
            if let Some(mean) = (begin.elapsed().as_nanos() as u64).checked_div(count) {
                let before = self.program.block_time.load(Ordering::Relaxed);
                let mean = if before == 0 { mean } else { (before * 7 + mean) / 8 };
                self.program.block_time.store(mean.max(1), Ordering::Relaxed);
            }
        });
    }

    fn is_open(&self) -> bool {
        self.has_more() && !self.unpaid.load(Ordering::Relaxed)
    }
}
