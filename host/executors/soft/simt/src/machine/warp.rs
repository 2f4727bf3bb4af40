//! A warp, or a part of one: a frame, and which lanes are where.
//!
//! Lanes that are not running are pending at a basic block. The lowest block in the order of the text runs
//! next, with all lanes that are pending there, so that lanes that diverged reconverge as early as they can.
//! The lanes of [`Warp::mask`] run; all pending blocks are above the running one.

use super::frame::Frame;
use super::slot::FrameLayout;

/// What a step returns to end the run of its warp. No program has so many steps.
pub(crate) const LEAVE: u32 = u32::MAX;

/// The number of no block: above all others.
const NOWHERE: u32 = u32::MAX;

/// Why the run of a warp ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Exit {
    /// No lane is left here: all have returned or belong to another part of the warp.
    Done,
    /// The active lanes wait at a barrier and go on at a block.
    Barrier { block: u32 },
    /// The active lanes want to run the step `pc` with the lanes of `wanted`, which are not all here.
    Reconverge { pc: u32, wanted: u32 },
    /// The run was long enough and goes on at the step `pc`.
    Preempted { pc: u32 },
    /// The launch is over.
    Fault,
}

/// The lanes of a warp that run and wait together, with their registers.
#[derive(Debug)]
pub(crate) struct Warp {
    /// The registers of all lanes.
    pub(crate) frame: Frame,
    /// The lanes that run.
    pub(crate) mask: u32,
    /// The lanes of the warp that have not returned, those of its other parts included.
    pub(crate) alive: u32,
    /// Index of the warp in the block.
    pub(crate) index: u32,
    /// Why the last run ended. Only valid after a step has left.
    pub(crate) exit: Exit,
    /// Number of instructions that loops and long straight lines may run before the control is polled.
    pub(crate) fuel: i64,
    /// The lowest pending block.
    pub(super) lowest: u32,
    /// Lanes pending, by block.
    pub(super) pending: Vec<u32>,
    /// A bit for each block where lanes are pending.
    pub(super) occupied: Vec<u64>,
}

impl Default for Warp {
    fn default() -> Self {
        Self {
            frame: Frame::default(),
            mask: 0,
            alive: 0,
            index: 0,
            exit: Exit::Done,
            fuel: 0,
            lowest: NOWHERE,
            pending: Vec::new(),
            occupied: Vec::new(),
        }
    }
}

impl Warp {
    /// Makes this the warp `index` of the blocks of a launch, with a zeroed frame and no lanes. Returns false
    /// if the host has no memory for the frame.
    pub(crate) fn reset(&mut self, layout: &FrameLayout, index: u32, blocks: usize) -> bool {
        let fits = self.frame.reset(layout);
        self.empty(index, blocks);
        fits
    }

    /// Makes this the warp `index` beside another one of the same launch, with the other's frame and no
    /// lanes. Returns false if the host has no memory for the frame.
    pub(crate) fn reset_beside(&mut self, other: &Self, index: u32) -> bool {
        let fits = self.frame.reset_like(&other.frame);
        self.empty(index, other.pending.len());
        fits
    }

    /// Makes this the warp `index`, without lanes.
    fn empty(&mut self, index: u32, blocks: usize) {
        self.index = index;
        self.pending.clear();
        self.pending.resize(blocks, 0);
        self.occupied.clear();
        self.occupied.resize(blocks.div_ceil(64), 0);
        self.lowest = NOWHERE;
        self.mask = 0;
        self.alive = 0;
        self.fuel = 0;
    }

    /// Copies another warp. Memory is allocated only where the warp has too little.
    pub(crate) fn copy_from(&mut self, other: &Self) {
        let Self { frame, mask, alive, index, exit, fuel, lowest, pending, occupied } = other;
        self.frame.copy_from(frame);
        self.pending.clone_from(pending);
        self.occupied.clone_from(occupied);
        (self.mask, self.alive, self.index, self.exit) = (*mask, *alive, *index, *exit);
        (self.fuel, self.lowest) = (*fuel, *lowest);
    }

    /// Where the frame, the lanes pending and the bits of their blocks are.
    pub(super) const fn pointers(&mut self) -> (*mut u8, *mut u32, *mut u64) {
        (self.frame.base(), self.pending.as_mut_ptr(), self.occupied.as_mut_ptr())
    }

    /// Has `lanes` run, and no others.
    pub(crate) fn start(&mut self, lanes: u32) {
        if !self.is_empty() {
            self.forget_pending();
        }
        (self.mask, self.alive) = (lanes, lanes);
    }

    /// Whether no lane is pending.
    pub(crate) const fn is_empty(&self) -> bool {
        self.lowest == NOWHERE
    }

    /// All lanes of this part: running, waiting or pending.
    #[inline]
    pub(crate) fn lanes(&self) -> u32 {
        if self.is_empty() { self.mask } else { self.mask | self.all_pending() }
    }

    /// The lanes that are pending at any block.
    fn all_pending(&self) -> u32 {
        let mut all = 0;
        for (word, &bits) in self.occupied.iter().enumerate() {
            let mut rest = bits;
            while rest != 0 {
                all |= self.pending[word * 64 + rest.trailing_zeros() as usize];
                rest &= rest - 1;
            }
        }
        all
    }

    /// Makes lanes pending at a block.
    pub(crate) fn put(&mut self, block: u32, lanes: u32) {
        self.pending[block as usize] |= lanes;
        self.occupied[block as usize / 64] |= 1 << (block % 64);
        self.lowest = self.lowest.min(block);
    }

    /// Drops the pending lanes: they belong to another part now.
    pub(crate) fn forget_pending(&mut self) {
        self.pending.fill(0);
        self.occupied.fill(0);
        self.lowest = NOWHERE;
    }

    /// Makes the lanes of the lowest pending block the running ones. Returns the block's first step, which is
    /// found in `blocks`, or [`LEAVE`] if no lane is pending.
    pub(crate) fn next(&mut self, blocks: &[u32]) -> u32 {
        let block = self.lowest;
        if block == NOWHERE {
            self.mask = 0;
            self.exit = Exit::Done;
            return LEAVE;
        }
        self.mask = std::mem::take(&mut self.pending[block as usize]);
        let mut word = block as usize / 64;
        self.occupied[word] &= !(1 << (block % 64));
        // The blocks below are empty.
        self.lowest = loop {
            match self.occupied.get(word) {
                None => break NOWHERE,
                Some(0) => word += 1,
                Some(bits) => break word as u32 * 64 + bits.trailing_zeros(),
            }
        };
        blocks[block as usize]
    }

    /// Moves the running lanes to a block that starts at the step `pc`. Returns the step that runs next.
    #[inline(always)]
    pub(crate) fn goto(&mut self, blocks: &[u32], block: u32, pc: u32) -> u32 {
        if block < self.lowest { pc } else { self.join(blocks, block) }
    }

    #[inline(never)]
    fn join(&mut self, blocks: &[u32], block: u32) -> u32 {
        self.put(block, self.mask);
        self.next(blocks)
    }

    /// Divides the running lanes: those of `then` go to one block, the others to another. Returns the step
    /// that runs next.
    #[inline(never)]
    pub(crate) fn diverge(&mut self, blocks: &[u32], then: (u32, u32), otherwise: u32) -> u32 {
        self.put(then.0, then.1);
        self.put(otherwise, self.mask & !then.1);
        self.next(blocks)
    }
}
