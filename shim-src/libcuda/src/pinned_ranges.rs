//! Ranges of pinned host memory, for messages about addresses. `object::pinned` maintains the list, and the
//! layers below it read it.

use std::collections::BTreeMap;

use crate::sync::RwLock;

/// Sizes in bytes of the ranges, by their first address.
static RANGES: RwLock<BTreeMap<usize, usize>> = RwLock::new(BTreeMap::new());

/// Adds a range.
pub fn add(start: usize, bytes: usize) {
    RANGES.write().insert(start, bytes);
}

/// Removes the range that starts at this address.
pub fn remove(start: usize) {
    RANGES.write().remove(&start);
}

/// Returns first address and size of the range that contains an address.
pub fn find(address: u64) -> Option<(usize, usize)> {
    let address = usize::try_from(address).ok()?;
    let ranges = RANGES.read();
    let (&start, &bytes) = ranges.range(..=address).next_back()?;
    (address - start < bytes).then_some((start, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_found_by_each_of_its_addresses_and_no_other() {
        // These addresses are below those that the kernel maps.
        add(0x100, 16);
        for (address, found) in
            [(0xff, None), (0x100, Some((0x100, 16))), (0x10f, Some((0x100, 16))), (0x110, None)]
        {
            assert_eq!(find(address), found, "{address:#x}");
        }
        remove(0x100);
        assert_eq!(find(0x100), None);
    }
}
