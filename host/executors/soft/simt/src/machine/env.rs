//! Environment of an instruction besides its warp: the launch, the memory of the block, and the results of
//! the run.

use std::sync::atomic::{AtomicBool, Ordering};

use vgpu_arena::{FaultKind, View, Windows};

use super::memory::{LocalMemory, SharedMemory};
use super::native::Context;
use super::operand::Tables;
use super::slot::LANES;
use super::warp::{Exit, LEAVE, Warp};
use crate::control::Control;
use crate::fault::{Fault, Site};
use crate::heap::Heap;

/// Number of instructions in loops and long straight lines that a warp executes before it polls the control.
const FUEL: i64 = 20_000;
/// Fuel of a warp in a cooperative grid, whose blocks take turns on one thread.
const COOPERATIVE_FUEL: i64 = 500;

/// Number of iterations of a turn in loops that may wait for other lanes. Lanes of a warp that compete for
/// one word by compare-and-swap need half as many, and none is starved.
const TURN: u32 = 2 * LANES as u32;

/// Maximum size in bytes of the text that a launch may print. Text beyond the limit is dropped, as when a
/// GPU's buffer is full.
pub(crate) const MOST_TEXT: usize = 1 << 20;

/// Number of blocks and threads of a launch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GridShape {
    /// Number of blocks by axis.
    pub(crate) grid: [u32; 3],
    /// Number of threads of a block by axis.
    pub(crate) block: [u32; 3],
}

/// State that all warps of a block share while they run.
pub(crate) struct Env<'a> {
    pub(crate) shape: GridShape,
    /// Index of the block in the grid (`%ctaid`).
    pub(crate) block: [u32; 3],
    /// First instruction of each basic block of the code.
    pub(crate) blocks: &'a [u32],
    pub(crate) tables: &'a Tables,
    pub(crate) params: &'a [u8],
    /// Dynamic shared memory of a block in bytes.
    pub(crate) dynamic_shared: u32,
    /// Device address of a cooperative grid's workspace.
    pub(crate) workspace: u64,
    pub(crate) view: &'a View,
    /// One window for each instruction that accesses device memory.
    pub(crate) windows: Windows<'a>,
    /// Memory that machine code addresses directly.
    pub(crate) context: &'a mut Context,
    pub(crate) shared: &'a mut SharedMemory,
    /// Heap for `malloc`. `None` makes every allocation fail.
    pub(crate) heap: Option<&'a Heap>,
    /// Local memory of each warp of the block.
    pub(crate) local: &'a mut [LocalMemory],
    pub(crate) control: &'a Control,
    /// Whether a fault in another block has ended the launch.
    pub(crate) over: &'a AtomicBool,
    /// Text that the block has printed and that has not been delivered yet.
    pub(crate) printed: String,
    /// Number of instructions that machine code has passed to the interpreter.
    pub(crate) handed: u64,
    /// Whether the blocks of the grid take turns on one thread.
    pub(crate) cooperative: bool,
    /// Whether a warp has ended its turn by `nanosleep` since all warps of the block had theirs.
    pub(crate) slept: bool,
    /// Index of the barrier record at which a warp has stopped; the next field is the line of the barrier's
    /// instruction.
    pub(crate) barrier: u32,
    pub(crate) barrier_line: u32,
    /// The fault that ended the launch in this block.
    pub(crate) fault: Option<Fault>,
}

impl Env<'_> {
    /// Returns the site of a fault: the line, and the thread of the lowest lane in `lanes`.
    #[cold]
    pub(crate) fn site(&self, warp: &Warp, line: u32, lanes: u32) -> Site {
        let thread = warp.index * LANES as u32 + lanes.trailing_zeros() % LANES as u32;
        Site { line, block: self.block, thread: coordinates(thread, self.shape.block) }
    }

    /// Ends the launch with a fault. Returns the value that the failing instruction must return ([`LEAVE`]).
    #[cold]
    pub(crate) fn fail(&mut self, warp: &mut Warp, fault: Fault) -> u32 {
        self.fault.get_or_insert(fault);
        warp.exit = Exit::Fault;
        LEAVE
    }

    /// Ends the launch after device memory has refused an access. Returns the value that the failing
    /// instruction must return.
    #[cold]
    #[inline(never)]
    pub(crate) fn refused(&mut self, warp: &mut Warp, line: u32, refusal: &vgpu_arena::Fault) -> u32 {
        let lane = if warp.mask >> refusal.lane & 1 != 0 { 1 << refusal.lane } else { warp.mask };
        let site = self.site(warp, line, lane);
        let fault = match refusal.kind {
            FaultKind::Illegal => Fault::Illegal { address: refusal.address, write: refusal.write, site },
            FaultKind::Misaligned => Fault::Misaligned { address: refusal.address, site },
        };
        self.fail(warp, fault)
    }

    /// Polls the control for a warp that has used up its fuel. Returns whether the warp continues. If not,
    /// its instruction must leave. Unless the launch has ended, the warp executes the instruction `pc` again
    /// later and pays `cost` again.
    #[cold]
    #[inline(never)]
    pub(crate) fn poll(&mut self, warp: &mut Warp, line: u32, pc: u32, cost: i64) -> bool {
        if !self.refuel(warp, line) {
            return false;
        }
        // Others may have to run first: the running lanes may wait for what they store.
        let warps = self.cooperative || self.shape.block.iter().product::<u32>() > LANES as u32;
        let others = warps || warp.is_divided();
        if others {
            // Without the addition, an instruction that costs more than full fuel would be preempted forever.
            warp.fuel += cost;
            warp.exit = Exit::Preempted { pc, starved: self.next_turn(warp) };
        }
        !others
    }

    /// Returns the number of iterations of a turn in loops that may wait for other lanes.
    pub(crate) fn turn(&self) -> u32 {
        if self.control.has_short_turns() { 1 } else { TURN }
    }

    /// Starts the next turn of a warp. Returns whether lanes were pending during the whole last one and may
    /// rely on their progress.
    fn next_turn(&self, warp: &mut Warp) -> bool {
        warp.next_turn() && self.tables.independent_lanes
    }

    /// Yields the processor to other threads if a warp has slept.
    pub(crate) fn let_others_run(&mut self) {
        if std::mem::take(&mut self.slept) {
            std::thread::yield_now();
        }
    }

    /// Ends the turn of a warp, so that others and other lanes of its own run. Its instruction must leave.
    /// Unless the launch has ended, the warp continues with the instruction `pc`.
    #[cold]
    #[inline(never)]
    pub(crate) fn end_turn(&mut self, warp: &mut Warp, line: u32, pc: u32) {
        if self.refuel(warp, line) {
            warp.exit = Exit::Preempted { pc, starved: self.next_turn(warp) };
        }
    }

    /// Charges the fuel that a warp has used, and gives it full fuel. Returns whether the launch goes on.
    fn refuel(&mut self, warp: &mut Warp, line: u32) -> bool {
        let full = match self.cooperative {
            _ if self.control.has_short_turns() => 1,
            true => COOPERATIVE_FUEL,
            false => FUEL,
        };
        let spent = full - warp.fuel;
        warp.fuel = full;
        if self.over.load(Ordering::Relaxed) {
            self.fail(warp, Fault::Stopped);
            return false;
        }
        let halt = self.control.poll(spent.unsigned_abs()).err();
        if let Some(halt) = halt {
            let site = self.site(warp, line, warp.mask);
            self.fail(warp, Fault::halted(halt, site));
        }
        halt.is_none()
    }
}

/// Returns the coordinates of an index in a box of this shape. The first axis varies fastest.
pub(crate) const fn coordinates(index: u32, shape: [u32; 3]) -> [u32; 3] {
    let [x, y, _] = shape;
    [index % x, index / x % y, index / x / y]
}
