//! State of a warp or of a split: its frame, and the block that each lane is at.
//!
//! Lanes that are not running are pending at a basic block. The lowest pending block in the order of the text
//! runs next, with all lanes that are pending there, so that diverged lanes reconverge as early as possible.
//! The lanes of [`Warp::mask`] are running. All pending blocks are above the running one.
//!
//! In this order, lanes that wait in a loop for what other lanes of the warp do would wait forever if these
//! are pending above the loop. Therefore warps run in turns, which end after some iterations of loops that
//! are known to observe other lanes, and when the fuel is used up. Lanes that have been pending for a whole
//! turn become a split of their own.

use super::frame::Frame;
use super::slot::FrameLayout;

/// Return value of an instruction that ends the run of its warp. No program has so many instructions.
pub(crate) const LEAVE: u32 = u32::MAX;

/// Block number that stands for no block. It is above all others.
const NOWHERE: u32 = u32::MAX;

/// Reason why the run of a warp ended.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum Exit {
    /// No lane is left: all have returned or belong to another split.
    #[default]
    Done,
    /// The active lanes wait at a barrier and continue at a block.
    Barrier { block: u32 },
    /// The active lanes have to execute the instruction `pc` together with the lanes of `wanted`, some of
    /// which are not here.
    Reconverge { pc: u32, wanted: u32 },
    /// The warp has used up its fuel or its turn, and continues at the instruction `pc`. If lanes are
    /// `starved`, those that are pending continue apart from the running ones.
    Preempted { pc: u32, starved: bool },
    /// The launch has ended, by a fault of this warp or from outside.
    Fault,
}

/// The lanes of a warp, or of a split of one, with their registers.
#[derive(Debug, Default)]
pub(crate) struct Warp {
    /// The registers of all lanes.
    pub(crate) frame: Frame,
    /// Mask of the running lanes.
    pub(crate) mask: u32,
    /// Mask of the warp's lanes that have not returned, including those of its other splits.
    pub(crate) alive: u32,
    /// Index of the warp in the block.
    pub(crate) index: u32,
    /// Reason why the last run ended, valid after an instruction has left.
    pub(crate) exit: Exit,
    /// Number of instructions that the warp may execute in loops and long straight lines before it polls the
    /// control.
    pub(crate) fuel: i64,
    /// The lowest block at which lanes are pending, or [`NOWHERE`].
    pub(super) lowest: u32,
    /// Masks of the pending lanes, by block. The last element is the mask of the lanes that have been
    /// pending and have run since the start of the turn.
    pub(super) pending: Vec<u32>,
    /// Bit set of the blocks at which lanes are pending.
    pub(super) occupied: Vec<u64>,
    /// Number of iterations in this turn of loops that may wait for other lanes.
    iterations: u32,
    /// Lanes that were pending at the start of the turn.
    waiting: u32,
}

impl Warp {
    /// Makes this the warp `index` of a launch, with a zeroed frame and no lanes. Returns false if the host
    /// has no memory for the frame.
    pub(crate) fn reset(&mut self, layout: &FrameLayout, index: u32, blocks: usize) -> bool {
        let fits = self.frame.reset(layout);
        self.empty(index, blocks);
        fits
    }

    /// Makes this the warp `index` of the same launch as `other`, with a copy of its frame and no lanes.
    /// Returns false if the host has no memory for the frame.
    pub(crate) fn reset_beside(&mut self, other: &Self, index: u32) -> bool {
        let fits = self.frame.reset_like(&other.frame);
        self.empty(index, other.pending.len() - 1);
        fits
    }

    /// Makes this the warp `index` without any lanes.
    fn empty(&mut self, index: u32, blocks: usize) {
        self.index = index;
        self.pending.clear();
        self.pending.resize(blocks + 1, 0);
        self.occupied.clear();
        self.occupied.resize(blocks.div_ceil(64), 0);
        self.lowest = NOWHERE;
        self.mask = 0;
        self.alive = 0;
        self.fuel = 0;
        (self.iterations, self.waiting) = (0, 0);
    }

    /// Copies another warp, and reuses the memory of this one.
    pub(crate) fn copy_from(&mut self, other: &Self) {
        let Self { frame, mask, alive, index, exit, fuel, lowest, pending, occupied, .. } = other;
        let Self { iterations, waiting, .. } = other;
        self.frame.copy_from(frame);
        self.pending.clone_from(pending);
        self.occupied.clone_from(occupied);
        (self.mask, self.alive, self.index, self.exit) = (*mask, *alive, *index, *exit);
        (self.fuel, self.lowest) = (*fuel, *lowest);
        (self.iterations, self.waiting) = (*iterations, *waiting);
    }

    /// Returns the addresses of the frame, of the pending masks and of their bit set, for machine code. They
    /// are valid until the warp is reset.
    pub(super) const fn pointers(&mut self) -> (*mut u8, *mut u32, *mut u64) {
        (self.frame.base(), self.pending.as_mut_ptr(), self.occupied.as_mut_ptr())
    }

    /// Makes exactly `lanes` the running lanes.
    pub(crate) fn start(&mut self, lanes: u32) {
        if !self.is_empty() {
            self.forget_pending();
        }
        (self.mask, self.alive) = (lanes, lanes);
        (self.iterations, self.waiting) = (0, 0);
    }

    /// Returns whether no lane is pending at any block.
    pub(crate) const fn is_empty(&self) -> bool {
        self.lowest == NOWHERE
    }

    /// Returns all lanes of this split: running, waiting or pending.
    #[inline]
    pub(crate) fn lanes(&self) -> u32 {
        if self.is_empty() { self.mask } else { self.mask | self.all_pending() }
    }

    /// Returns the lanes that are pending at any block.
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

    /// Returns whether lanes of the warp besides the running ones may still run, here or in other splits.
    #[inline]
    pub(crate) const fn is_divided(&self) -> bool {
        self.alive & !self.mask != 0
    }

    /// Counts an iteration of a loop in which the running lanes may wait for others. Returns whether their
    /// turn is over: it has had `most` iterations, and there are others.
    #[inline]
    pub(crate) const fn iterate(&mut self, most: u32) -> bool {
        self.iterations += 1;
        if self.iterations < most {
            return false;
        }
        self.iterations = 0;
        self.is_divided()
    }

    /// Starts the next turn. Returns whether lanes have been pending during the whole last one.
    pub(super) fn next_turn(&mut self) -> bool {
        let pending = if self.is_empty() { 0 } else { self.all_pending() };
        let ran = self.pending.last_mut().map(std::mem::take).unwrap_or_default();
        let starved = self.waiting & pending & !ran != 0;
        (self.iterations, self.waiting) = (0, pending);
        starved
    }

    /// Makes lanes pending at a block, in addition to those that are pending there already.
    pub(crate) fn put(&mut self, block: u32, lanes: u32) {
        self.pending[block as usize] |= lanes;
        self.occupied[block as usize / 64] |= 1 << (block % 64);
        self.lowest = self.lowest.min(block);
    }

    /// Drops the pending lanes, which another split has taken over.
    pub(crate) fn forget_pending(&mut self) {
        self.pending.fill(0);
        self.occupied.fill(0);
        self.lowest = NOWHERE;
    }

    /// Makes the lanes of the lowest pending block the running ones. Returns the block's first instruction,
    /// which is found in `blocks`, or [`LEAVE`] if no lane is pending.
    pub(crate) fn next(&mut self, blocks: &[u32]) -> u32 {
        let block = self.lowest;
        if block == NOWHERE {
            self.mask = 0;
            self.exit = Exit::Done;
            return LEAVE;
        }
        self.mask = std::mem::take(&mut self.pending[block as usize]);
        if let Some(ran) = self.pending.last_mut() {
            *ran |= self.mask;
        }
        let mut word = block as usize / 64;
        self.occupied[word] &= !(1 << (block % 64));
        // No lane is pending at a lower block.
        self.lowest = loop {
            match self.occupied.get(word) {
                None => break NOWHERE,
                Some(0) => word += 1,
                Some(bits) => break word as u32 * 64 + bits.trailing_zeros(),
            }
        };
        blocks[block as usize]
    }

    /// Moves the running lanes to a block that starts at the instruction `pc`. Lanes that are pending at a
    /// lower block run first. Returns the instruction that runs next.
    #[inline(always)]
    pub(crate) fn goto(&mut self, blocks: &[u32], block: u32, pc: u32) -> u32 {
        if block < self.lowest { pc } else { self.join(blocks, block) }
    }

    #[inline(never)]
    fn join(&mut self, blocks: &[u32], block: u32) -> u32 {
        self.put(block, self.mask);
        self.next(blocks)
    }

    /// Diverges the running lanes: those of `then` continue at one block, the others at another. Returns the
    /// instruction that runs next.
    #[inline(never)]
    pub(crate) fn diverge(&mut self, blocks: &[u32], then: (u32, u32), otherwise: u32) -> u32 {
        self.put(then.0, then.1);
        self.put(otherwise, self.mask & !then.1);
        self.next(blocks)
    }
}
