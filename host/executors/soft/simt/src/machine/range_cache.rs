//! What machine code remembers of the addresses that warps access.

use std::mem::offset_of;

use super::slot::LANES;

/// Vectors of addresses that machine code for AVX-512 remembers, and knows the extent of within a run of
/// steps.
pub(crate) const RANGE_ENTRIES: usize = 128;

/// Words of what it knows of each.
pub(crate) const RANGE_WORDS: usize = 5;

/// What code for AVX-512 remembers of vectors of addresses from one run to the next. No other code writes to
/// it, so that it holds in whatever kernel: the offsets themselves say of what it is known.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct RangeCache {
    offsets: [[u32; LANES]; RANGE_ENTRIES],
    /// The address from which offsets count, how far it is from the lowest one to the highest, a byte for
    /// each of the ways in which neighbours may lie, the offset of the lowest, and the mask of active lanes
    /// with which the offsets above are those of which all this is known; 0 where nothing is.
    ranges: [[u64; RANGE_WORDS]; RANGE_ENTRIES],
}

impl RangeCache {
    pub(crate) const OFFSETS: i32 = offset_of!(Self, offsets) as i32;
    pub(crate) const RANGES: i32 = offset_of!(Self, ranges) as i32;

    pub(super) const EMPTY: Self =
        Self { offsets: [[0; LANES]; RANGE_ENTRIES], ranges: [[0; RANGE_WORDS]; RANGE_ENTRIES] };
}
