//! What steps see besides their warp: the launch, the block's memory, and where results of the run are left.

use vgpu_arena::{FaultKind, View, Window};

use crate::block::BarrierStep;
use crate::control::Control;
use crate::fault::{Fault, Site};
use crate::machine::LANES;
use crate::memory::{LocalMemory, SharedMemory};
use crate::ops::atomic::AtomicStep;
use crate::ops::bits::Field;
use crate::ops::mma::MatrixStep;
use crate::ops::rare::RareStep;
use crate::printf::PrintStep;
use crate::program::MemoryStep;
use crate::warp::{Exit, Warp};

/// Instructions that a warp may run, in loops and long straight lines, before the control is looked at.
const FUEL: i64 = 20_000;
/// The same of a cooperative grid's blocks, which take turns on one thread.
const COOPERATIVE_FUEL: i64 = 500;

/// Shape of a launch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
}

/// Tables that steps index, of one variant of a program.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    pub(crate) memory: Vec<MemoryStep>,
    pub(crate) rare: Vec<RareStep>,
    pub(crate) fields: Vec<Field>,
    pub(crate) barriers: Vec<BarrierStep>,
    pub(crate) prints: Vec<PrintStep>,
    pub(crate) matrices: Vec<MatrixStep>,
    pub(crate) atomics: Vec<AtomicStep>,
}

/// See the module.
pub(crate) struct Env<'a> {
    pub(crate) shape: Shape,
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
    pub(crate) windows: &'a mut [Window],
    pub(crate) shared: &'a mut SharedMemory,
    /// Local memory of each warp.
    pub(crate) local: &'a mut [LocalMemory],
    pub(crate) control: &'a Control,
    /// Another block's fault has ended the launch.
    pub(crate) over: &'a std::sync::atomic::AtomicBool,
    /// Text that was printed and is to be handed out.
    pub(crate) printed: String,
    /// Whether blocks take turns.
    pub(crate) cooperative: bool,
    /// Index of the barrier step that a warp has left at, and its line.
    pub(crate) barrier: u32,
    pub(crate) barrier_line: u32,
    /// The step that lanes may run though lanes are missing, for those cannot come.
    pub(crate) meet_anyway: Option<u32>,
    /// What ended the launch in this block.
    pub(crate) fault: Option<Fault>,
}

impl Env<'_> {
    /// Where the lowest lane of `lanes` is.
    #[cold]
    pub(crate) fn site(&self, warp: &Warp, line: u32, lanes: u32) -> Site {
        let thread = warp.index * LANES as u32 + lanes.trailing_zeros() % LANES as u32;
        Site { line, block: self.block, thread: coordinates(thread, self.shape.block) }
    }

    /// Device memory refused an access.
    #[cold]
    #[inline(never)]
    pub(crate) fn refused(&mut self, warp: &mut Warp, line: u32, refusal: &vgpu_arena::Fault) -> u32 {
        let lane = if warp.mask >> refusal.lane & 1 != 0 { 1 << refusal.lane } else { warp.mask };
        let site = self.site(warp, line, lane);
        let fault = match refusal.kind {
            FaultKind::Illegal => Fault::Illegal { address: refusal.address, write: refusal.write, site },
            FaultKind::Misaligned => Fault::Misaligned { address: refusal.address, site },
        };
        warp.fail(self, fault)
    }

    /// A warp has used its fuel up. Whether it may go on now; else it must leave, and if that is no fault it runs the step `pc`
    /// again, which costs it `cost` again.
    #[cold]
    #[inline(never)]
    pub(crate) fn poll(&mut self, warp: &mut Warp, line: u32, pc: u32, cost: i64) -> bool {
        let full = if self.cooperative { COOPERATIVE_FUEL } else { FUEL };
        let spent = full - warp.fuel;
        warp.fuel = full;
        if self.over.load(std::sync::atomic::Ordering::Relaxed) {
            warp.fail(self, Fault::Stopped);
            return false;
        }
        match self.control.poll(spent.unsigned_abs()) {
            // Other warps may have to run first: this one may wait for what they store.
            Ok(()) if self.cooperative || self.shape.block.iter().product::<u32>() > LANES as u32 => {
                // Without this a step that costs more than a full measure would never be passed.
                warp.fuel = full + cost;
                warp.exit = Exit::Preempted { pc };
                false
            }
            Ok(()) => true,
            Err(halt) => {
                let site = self.site(warp, line, warp.mask);
                warp.fail(self, Fault::halted(halt, site));
                false
            }
        }
    }
}

/// An index in a box of this shape, x first.
pub(crate) const fn coordinates(index: u32, shape: [u32; 3]) -> [u32; 3] {
    let [x, y, _] = shape;
    [index % x, index / x % y, index / x / y]
}
