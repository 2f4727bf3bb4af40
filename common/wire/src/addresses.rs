//! The device addresses of a function, which it announces in its facts.
//!
//! A copy names memory by address alone, so no two functions of one machine may share device addresses, and
//! no memory of a guest process may lie where a device pointer could point. A host therefore announces one
//! range for each function, and a guest reserves it in each process that attaches.

use core::fmt;

use crate::facts::DeviceFacts;

/// Page size in bytes. A range starts and ends at a multiple of it.
const PAGE: u64 = 4096;
/// The first address that no x86-64 process with four-level page tables can map.
const USER_END: u64 = 1 << 47;
/// Index in [`DeviceFacts::reserved`] of the low half of the range's base. The high half follows, and then
/// the two halves of its size.
const BASE: usize = 1;
/// Index in [`DeviceFacts::reserved`] of the low half of the range's size.
const BYTES: usize = 3;

/// A range of device addresses, announced by the function that allocates in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressRange {
    /// First device address of the range, a multiple of the page size.
    pub base: u64,
    /// Length of the range in bytes.
    pub bytes: u64,
}

impl AddressRange {
    /// Returns the first address after the range.
    #[must_use]
    pub const fn end(&self) -> u64 {
        self.base.saturating_add(self.bytes)
    }

    /// Returns whether all of the `bytes` addresses from `address` on are in the range.
    #[must_use]
    pub const fn holds(&self, address: u64, bytes: u64) -> bool {
        address >= self.base && bytes <= self.bytes && address - self.base <= self.bytes - bytes
    }

    /// Returns whether the two ranges have an address in common.
    #[must_use]
    pub const fn overlaps(&self, other: &Self) -> bool {
        self.base < other.end() && other.base < self.end()
    }

    /// Returns whether a process can reserve the range: whole pages, not the first page, and below 2^47.
    #[must_use]
    pub const fn is_possible(&self) -> bool {
        self.base != 0
            && self.bytes != 0
            && self.base.is_multiple_of(PAGE)
            && self.bytes.is_multiple_of(PAGE)
            && self.bytes <= USER_END
            && self.base <= USER_END - self.bytes
    }
}

/// Displays the first and the last address of the range.
impl fmt::Display for AddressRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x} to {:#x}", self.base, self.end().saturating_sub(1))
    }
}

impl DeviceFacts {
    /// Returns the range that the host announces. A guest checks it by [`AddressRange::is_possible`]. Returns
    /// `None` if the host announces none, because it is older than ranges.
    #[must_use]
    pub fn addresses(&self) -> Option<AddressRange> {
        let wide = |at: usize| u64::from(self.reserved[at + 1]) << 32 | u64::from(self.reserved[at]);
        let range = AddressRange { base: wide(BASE), bytes: wide(BYTES) };
        (range.base != 0 || range.bytes != 0).then_some(range)
    }

    /// Stores the range that the host announces.
    pub fn set_addresses(&mut self, range: AddressRange) {
        for (at, value) in [(BASE, range.base), (BYTES, range.bytes)] {
            self.reserved[at] = value as u32;
            self.reserved[at + 1] = (value >> 32) as u32;
        }
    }
}

/// The offsets that docs/wire.md states for the range.
const _: () = {
    let reserved = core::mem::offset_of!(DeviceFacts, reserved);
    assert!(reserved + 4 * BASE == 384 && reserved + 4 * BYTES == 392);
};
