//! A warp, or a part of one: a frame, and which lanes are where.
//!
//! Lanes that are not running are pending at a basic block. The lowest block in the order of the text runs next, with all
//! lanes that are pending there: so lanes that went apart meet again as early as they can. The lanes of
//! [`Warp::mask`] run; all pending blocks are above the running one.

use crate::env::Env;
use crate::fault::Fault;
use crate::machine::{Frame, LEAVE, Layout};

/// No block: above all.
const NOWHERE: u32 = u32::MAX;

/// Why a warp's run ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Exit {
    /// No lane is left, here: they have returned or were given away.
    Done,
    /// The active lanes wait at a barrier, to go on at a block.
    Barrier { block: u32 },
    /// The active lanes want to run the step `pc` with `wanted` lanes, which are not all here.
    Meet { pc: u32, wanted: u32 },
    /// The run was long enough; it goes on at the step `pc`.
    Preempted { pc: u32 },
    /// The launch is over.
    Fault,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Warp {
    /// Registers.
    pub(crate) frame: Frame,
    /// The lanes that run.
    pub(crate) mask: u32,
    /// The lanes of this warp, wherever its parts are, that have not returned.
    pub(crate) alive: u32,
    /// Its index in the block.
    pub(crate) index: u32,
    /// Why the last run ended.
    pub(crate) exit: Exit,
    /// Instructions that loops and long straight lines may run before the control is looked at.
    pub(crate) fuel: i64,
    /// The lowest pending block.
    lowest: u32,
    /// Lanes pending, by block.
    pending: Vec<u32>,
    /// A bit for each block where lanes are pending.
    occupied: Vec<u64>,
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
    /// Makes it warp `index` of blocks of a launch: a zeroed frame, no lanes. False: the host has no memory for it.
    pub(crate) fn reset(&mut self, layout: &Layout, index: u32, blocks: usize) -> bool {
        if !self.frame.reset(layout) {
            return false;
        }
        self.index = index;
        self.pending.clear();
        self.pending.resize(blocks, 0);
        self.occupied.clear();
        self.occupied.resize(blocks.div_ceil(64), 0);
        self.lowest = NOWHERE;
        self.mask = 0;
        self.alive = 0;
        self.fuel = 0;
        true
    }

    /// Becomes the same as another, in the memory that it has where that is enough.
    pub(crate) fn copy_from(&mut self, other: &Self) {
        let Self { frame, mask, alive, index, exit, fuel, lowest, pending, occupied } = other;
        self.frame.copy_from(frame);
        self.pending.clone_from(pending);
        self.occupied.clone_from(occupied);
        (self.mask, self.alive, self.index, self.exit) = (*mask, *alive, *index, *exit);
        (self.fuel, self.lowest) = (*fuel, *lowest);
    }

    /// All of `lanes` are at the entry.
    pub(crate) fn start(&mut self, lanes: u32) {
        if !self.is_empty() {
            self.forget_pending();
        }
        self.mask = 0;
        self.alive = lanes;
        self.put(0, lanes);
    }

    /// Whether no lane is pending.
    pub(crate) const fn is_empty(&self) -> bool {
        self.lowest == NOWHERE
    }

    /// All its lanes: running, waiting or pending.
    pub(crate) fn lanes(&self) -> u32 {
        if self.is_empty() {
            self.mask
        } else {
            let mut all = self.mask;
            for (word, &bits) in self.occupied.iter().enumerate() {
                let mut rest = bits;
                while rest != 0 {
                    all |= self.pending[word * 64 + rest.trailing_zeros() as usize];
                    rest &= rest - 1;
                }
            }
            all
        }
    }

    /// Makes lanes pending at a block.
    pub(crate) fn put(&mut self, block: u32, lanes: u32) {
        self.pending[block as usize] |= lanes;
        self.occupied[block as usize / 64] |= 1 << (block % 64);
        self.lowest = self.lowest.min(block);
    }

    /// Its pending lanes are another's now.
    pub(crate) fn forget_pending(&mut self) {
        self.pending.fill(0);
        self.occupied.fill(0);
        self.lowest = NOWHERE;
    }

    /// Makes the lanes of the lowest pending block the running ones. Its first step; [`LEAVE`] if there is none.
    pub(crate) fn next(&mut self, env: &Env<'_>) -> u32 {
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
        env.blocks[block as usize]
    }

    /// The running lanes go to a block that begins at the step `pc`.
    #[inline(always)]
    pub(crate) fn goto(&mut self, env: &Env<'_>, block: u32, pc: u32) -> u32 {
        if block < self.lowest { pc } else { self.join(env, block) }
    }

    #[inline(never)]
    fn join(&mut self, env: &Env<'_>, block: u32) -> u32 {
        self.put(block, self.mask);
        self.next(env)
    }

    /// The running lanes part: `then` go to one block, the others to another.
    #[inline(never)]
    pub(crate) fn part(&mut self, env: &Env<'_>, then: (u32, u32), otherwise: u32) -> u32 {
        self.put(then.0, then.1);
        self.put(otherwise, self.mask & !then.1);
        self.next(env)
    }

    /// Ends the launch.
    #[cold]
    pub(crate) fn fail(&mut self, env: &mut Env<'_>, fault: Fault) -> u32 {
        env.fault.get_or_insert(fault);
        self.exit = Exit::Fault;
        LEAVE
    }
}
