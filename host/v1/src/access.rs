//! A guest's access to a BAR, and the offsets and sizes that a bus delivers to the device.

/// The BARs of a version 1 device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bar {
    /// BAR0, which has the registers.
    Bar0,
    /// BAR1, which has the payload memory.
    Bar1,
}

/// Returns whether a bus delivers an access: it has 1, 2, 4 or 8 bytes and is aligned to its size.
pub(super) fn is_access(offset: u32, size: usize) -> bool {
    matches!(size, 1 | 2 | 4 | 8) && offset.is_multiple_of(size as u32) && offset.checked_add(8).is_some()
}

/// Returns the mask of the bits that an access of `size` bytes carries.
pub(super) const fn mask(size: usize) -> u64 {
    if size >= 8 { u64::MAX } else { (1 << (8 * size)) - 1 }
}
