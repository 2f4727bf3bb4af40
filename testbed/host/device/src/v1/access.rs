//! One access of a guest: which BAR, and which offsets and sizes a bus lets through.

/// The BARs of a version 1 device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bar {
    /// BAR0: the registers.
    Bar0,
    /// BAR1: the payload memory.
    Bar1,
}

/// Whether a bus lets an access through: 1 to 8 bytes, aligned to their number.
pub(super) fn is_access(offset: u32, size: usize) -> bool {
    matches!(size, 1 | 2 | 4 | 8) && offset.is_multiple_of(size as u32) && offset.checked_add(8).is_some()
}

/// The bits of an access of `size` bytes.
pub(super) const fn mask(size: usize) -> u64 {
    if size >= 8 { u64::MAX } else { (1 << (8 * size)) - 1 }
}
