//! Splits of warps, and the state in which each one is.

use std::mem::offset_of;

use zerocopy::FromZeros;

use super::range_cache::RangeCache;
use super::warp::Warp;

/// Scheduling state of a split, which determines what it does next.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SplitState {
    /// The split starts its lowest pending block.
    Ready,
    /// The split continues at the instruction with this index.
    At(u32),
    /// The lanes wait at a barrier, and continue at a block afterwards.
    AtBarrier { number: usize, inst: u32, block: u32, line: u32 },
    /// The lanes wait until the lanes of `wanted` have reached the instruction `pc` too.
    Reconverging { pc: u32, wanted: u32 },
    /// The split has no lanes and can be reused.
    Done,
}

/// A warp split: a subset of a warp's lanes that run and wait together. Machine code addresses some fields by
/// the constants below.
#[derive(Debug)]
pub(crate) struct WarpSplit {
    pub(crate) warp: Warp,
    pub(crate) state: SplitState,
    /// Pointers and state for the warp scheduler in machine code.
    pub(crate) context: WarpContext,
}

/// Stage of the warps that the scheduler runs in its first sweep. Warps that have arrived at a barrier have
/// stage 1. The two stages exchange their meaning after each sweep.
pub(crate) const FIRST_STAGE: u32 = 0;
/// Stage of a warp without lanes.
pub(crate) const DONE_STAGE: u32 = 2;

/// Warp context: the pointers with which machine code enters a warp, and the scheduling state of the warp.
/// The pointers are valid within [`super::Native::enter_block`].
#[derive(Debug, FromZeros)]
pub(crate) struct WarpContext {
    frame: *mut u8,
    pending: *mut u32,
    occupied: *mut u64,
    range_cache: *mut RangeCache,
    local: *mut u32,
    local_bytes: u32,
    pub(crate) stage: u32,
    /// Instruction at which the warp continues.
    pub(crate) pc: u32,
}

macro_rules! warp_offsets {
    ($($name:ident: $field:ident;)*) => { $(
        pub(crate) const $name: i32 = (offset_of!(WarpSplit, warp) + offset_of!(Warp, $field)) as i32;
    )* };
}

macro_rules! context_offsets {
    ($($name:ident: $field:ident;)*) => { $(
        pub(crate) const $name: i32 = (offset_of!(WarpSplit, context) + offset_of!(WarpContext, $field)) as i32;
    )* };
}

impl WarpSplit {
    pub(crate) const SIZE: i32 = size_of::<Self>() as i32;

    warp_offsets! { MASK: mask; ALIVE: alive; FUEL: fuel; LOWEST: lowest; }
    context_offsets! {
        FRAME: frame; PENDING: pending; OCCUPIED: occupied; RANGE_CACHE: range_cache; LOCAL: local;
        LOCAL_BYTES: local_bytes; STAGE: stage; PC: pc;
    }

    /// Creates a split without lanes.
    pub(crate) fn new(warp: Warp) -> Self {
        let context = WarpContext { stage: DONE_STAGE, ..WarpContext::new_zeroed() };
        Self { warp, state: SplitState::Done, context }
    }

    /// Binds the context to the current addresses of the frame, the address-range cache and the local memory,
    /// of which each lane has `bytes`.
    pub(super) fn bind(&mut self, range_cache: *mut RangeCache, (local, bytes): (*mut u32, u32)) {
        let (frame, pending, occupied) = self.warp.pointers();
        (self.context.frame, self.context.pending, self.context.occupied) = (frame, pending, occupied);
        (self.context.range_cache, self.context.local, self.context.local_bytes) =
            (range_cache, local, bytes);
    }
}
