//! A guest's access to a BAR, and the offsets and sizes that a bus delivers to the device.

/// The BARs of a version 1 device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bar {
    /// BAR0, which has the registers.
    Bar0,
    /// BAR1, which has the payload memory.
    Bar1,
}

/// Returns whether a bus delivers an access: one of 1, 2, 4 or 8 bytes, aligned to its size.
pub(super) fn is_access(offset: u32, size: usize) -> bool {
    matches!(size, 1 | 2 | 4 | 8) && offset.is_multiple_of(size as u32) && offset.checked_add(8).is_some()
}

/// Returns a mask of the low `size` bytes of a value, which an access of that size carries.
pub(super) const fn mask(size: usize) -> u64 {
    if size >= 8 { u64::MAX } else { (1 << (8 * size)) - 1 }
}
