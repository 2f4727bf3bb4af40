//! The environment of a step besides its warp: the launch, the block's memory, and where results of the run
//! are left.

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

/// Number of instructions that a warp may run, in loops and long straight lines, before it polls the control.
const FUEL: i64 = 20_000;
/// The same for the blocks of a cooperative grid, which take turns on one thread.
const COOPERATIVE_FUEL: i64 = 500;

/// Bytes of text that a launch may print. What exceeds them is dropped, as when a GPU's buffer is full.
pub(crate) const MOST_TEXT: usize = 1 << 20;

/// Shape of a launch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GridShape {
    /// Blocks by axis.
    pub(crate) grid: [u32; 3],
    /// Threads of a block by axis.
    pub(crate) block: [u32; 3],
}

/// What all warps of a block share while they run.
pub(crate) struct Env<'a> {
    pub(crate) shape: GridShape,
    /// `%ctaid`
    pub(crate) block: [u32; 3],
    /// First step of each block of the code.
    pub(crate) blocks: &'a [u32],
    pub(crate) tables: &'a Tables,
    pub(crate) params: &'a [u8],
    /// Bytes of dynamic shared memory.
    pub(crate) dynamic_shared: u32,
    /// Address of a cooperative grid's workspace.
    pub(crate) workspace: u64,
    pub(crate) view: &'a View,
    /// A window for each instruction that accesses device memory.
    pub(crate) windows: Windows<'a>,
    /// Where machine code keeps what it works on.
    pub(crate) context: &'a mut Context,
    pub(crate) shared: &'a mut SharedMemory,
    /// The heap of `malloc`, if the launch has one.
    pub(crate) heap: Option<&'a Heap>,
    /// Local memory of each warp.
    pub(crate) local: &'a mut [LocalMemory],
    pub(crate) control: &'a Control,
    /// Set when another block's fault has ended the launch.
    pub(crate) over: &'a AtomicBool,
    /// Text that was printed and has not been delivered.
    pub(crate) printed: String,
    /// Number of steps that machine code has handed to the interpreter.
    pub(crate) handed: u64,
    /// Whether blocks take turns on one thread.
    pub(crate) cooperative: bool,
    /// Index of the barrier record at which a warp has left, and the line of that instruction.
    pub(crate) barrier: u32,
    pub(crate) barrier_line: u32,
    /// The step that the lanes present may run without the missing ones, because those cannot come.
    pub(crate) reconverge_anyway: Option<u32>,
    /// The fault that ended the launch in this block.
    pub(crate) fault: Option<Fault>,
}

impl Env<'_> {
    /// The position of the lowest lane of `lanes`.
    #[cold]
    pub(crate) fn site(&self, warp: &Warp, line: u32, lanes: u32) -> Site {
        let thread = warp.index * LANES as u32 + lanes.trailing_zeros() % LANES as u32;
        Site { line, block: self.block, thread: coordinates(thread, self.shape.block) }
    }

    /// Ends the launch. Returns what the failing step must return.
    #[cold]
    pub(crate) fn fail(&mut self, warp: &mut Warp, fault: Fault) -> u32 {
        self.fault.get_or_insert(fault);
        warp.exit = Exit::Fault;
        LEAVE
    }

    /// Ends the launch because device memory refused an access.
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

    /// Polls the control for a warp that has used up its fuel. Returns whether the warp may go on now. If
    /// not, its step must leave; unless that is a fault, the warp runs the step `pc` again later, which costs
    /// it `cost` again.
    #[cold]
    #[inline(never)]
    pub(crate) fn poll(&mut self, warp: &mut Warp, line: u32, pc: u32, cost: i64) -> bool {
        let full = if self.cooperative { COOPERATIVE_FUEL } else { FUEL };
        let spent = full - warp.fuel;
        warp.fuel = full;
        if self.over.load(Ordering::Relaxed) {
            self.fail(warp, Fault::Stopped);
            return false;
        }
        match self.control.poll(spent.unsigned_abs()) {
            // Other warps may have to run first: this one may wait for what they store.
            Ok(()) if self.cooperative || self.shape.block.iter().product::<u32>() > LANES as u32 => {
                // Without the addition a step that costs more than a full measure would never be passed.
                warp.fuel = full + cost;
                warp.exit = Exit::Preempted { pc };
                false
            }
            Ok(()) => true,
            Err(halt) => {
                let site = self.site(warp, line, warp.mask);
                self.fail(warp, Fault::halted(halt, site));
                false
            }
        }
    }
}

/// The coordinates of an index in a box of this shape. The first axis varies fastest.
pub(crate) const fn coordinates(index: u32, shape: [u32; 3]) -> [u32; 3] {
    let [x, y, _] = shape;
    [index % x, index / x % y, index / x / y]
}
