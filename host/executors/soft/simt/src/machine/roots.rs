//! What machine code remembers of the addresses that warps access.

use std::mem::offset_of;

use super::slot::LANES;

/// Vectors of addresses that machine code for AVX-512 remembers, and knows the extent of within a run of
/// steps.
pub(crate) const ROOT_PLACES: usize = 128;

/// Words of what it knows of each.
pub(crate) const ROOT_WORDS: usize = 5;

/// What code for AVX-512 remembers of vectors of addresses from one run to the next. No other code writes to
/// it, so that it holds in whatever kernel: the offsets themselves say of what it is known.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct Roots {
    offsets: [[u32; LANES]; ROOT_PLACES],
    /// The address from which offsets count, how far it is from the lowest one to the highest, a byte for
    /// each of the ways in which neighbours may lie, the offset of the lowest, and the mask of active lanes
    /// with which the offsets above are those of which all this is known; 0 where nothing is.
    known: [[u64; ROOT_WORDS]; ROOT_PLACES],
}

impl Roots {
    pub(crate) const OFFSETS: i32 = offset_of!(Self, offsets) as i32;
    pub(crate) const KNOWN: i32 = offset_of!(Self, known) as i32;

    pub(super) const NOTHING: Self =
        Self { offsets: [[0; LANES]; ROOT_PLACES], known: [[0; ROOT_WORDS]; ROOT_PLACES] };
}
