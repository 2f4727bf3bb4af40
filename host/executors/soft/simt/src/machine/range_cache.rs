//! Cache of address ranges, which machine code for AVX-512 keeps for each warp to skip bounds checks.

use std::mem::offset_of;

use zerocopy::FromZeros;

use super::slot::LANES;

/// Number of address vectors in the cache, whose ranges machine code knows within a superblock.
pub(crate) const RANGE_ENTRIES: usize = 128;

/// Number of 64-bit words that describe the range of one vector.
pub(crate) const RANGE_WORDS: usize = 5;

/// Caches the span of address vectors across runs of machine code. An entry is valid while the offsets of the
/// lanes and the mask of active lanes are the same. Only machine code writes it, in any kernel.
#[repr(C, align(64))]
#[derive(Debug, FromZeros)]
pub(crate) struct RangeCache {
    offsets: [[u32; LANES]; RANGE_ENTRIES],
    /// Fields of each entry: the address from which offsets count, the distance from the lowest to the
    /// highest address, one byte for each tested distance of neighbours, the offset of the lowest address,
    /// and the mask of active lanes, which is 0 for an empty entry.
    ranges: [[u64; RANGE_WORDS]; RANGE_ENTRIES],
}

impl RangeCache {
    pub(crate) const OFFSETS: i32 = offset_of!(Self, offsets) as i32;
    pub(crate) const RANGES: i32 = offset_of!(Self, ranges) as i32;
}
