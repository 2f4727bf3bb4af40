//! Parts of warps, and what each does next.

use std::mem::offset_of;

use super::range_cache::RangeCache;
use super::warp::Warp;

/// What a part does next.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SplitState {
    /// It runs its lowest pending block.
    Ready,
    /// It goes on at a step.
    At(u32),
    /// Its lanes wait at a barrier, to go on at a block.
    AtBarrier { number: usize, inst: u32, block: u32, line: u32 },
    /// Its lanes wait for the others that the step `pc` names.
    Reconverging { pc: u32 },
    /// It has no lanes.
    Done,
}

/// Lanes of a warp that run and wait together. Machine code addresses some fields by the constants below.
#[derive(Debug)]
pub(crate) struct WarpSplit {
    pub(crate) warp: Warp,
    pub(crate) state: SplitState,
    /// What machine code needs while it runs the warps of a block one after another.
    pub(crate) context: WarpContext,
}

/// What a part does in the turns of a block that machine code runs. The stages of one sweep over the parts
/// are [`FIRST_STAGE`] for those to be run and the other of 0 and 1 for those that have arrived at a barrier;
/// in the next sweep it is the reverse.
pub(crate) const FIRST_STAGE: u32 = 0;
/// The stage of a part without lanes.
pub(crate) const DONE_STAGE: u32 = 2;

/// Where machine code finds a part, and where the part stands. The pointers are valid within
/// [`super::Native::turn`].
#[derive(Debug)]
pub(crate) struct WarpContext {
    frame: *mut u8,
    pending: *mut u32,
    occupied: *mut u64,
    range_cache: *mut RangeCache,
    local: *mut u32,
    local_bytes: u32,
    pub(crate) stage: u32,
    /// The step at which it goes on.
    pub(crate) pc: u32,
}

impl Default for WarpContext {
    fn default() -> Self {
        let (frame, pending) = (std::ptr::null_mut(), std::ptr::null_mut());
        let (occupied, range_cache) = (std::ptr::null_mut(), std::ptr::null_mut());
        Self {
            frame,
            pending,
            occupied,
            range_cache,
            local: std::ptr::null_mut(),
            local_bytes: 0,
            stage: DONE_STAGE,
            pc: 0,
        }
    }
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

    /// A part without lanes.
    pub(crate) fn new(warp: Warp) -> Self {
        Self { warp, state: SplitState::Done, context: WarpContext::default() }
    }

    /// Says where the part is, where it is kept what is known of its warp's addresses, and where the rows of
    /// local memory are, of which each lane has so many bytes.
    pub(super) fn bind(&mut self, range_cache: *mut RangeCache, (local, bytes): (*mut u32, u32)) {
        let (frame, pending, occupied) = self.warp.pointers();
        (self.context.frame, self.context.pending, self.context.occupied) = (frame, pending, occupied);
        (self.context.range_cache, self.context.local, self.context.local_bytes) =
            (range_cache, local, bytes);
    }
}
