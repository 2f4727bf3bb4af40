//! Device addresses: which ones are taken. Addresses of freed memory are reused only when all others have
//! been used, so that a stale pointer most likely points at nothing. A page behind each range stays free, so
//! that a pointer that has run over the end points at nothing either.

use std::collections::BTreeMap;

use vgpu_arena::PAGE;

/// Alignment of addresses. It is larger than on real devices, because ranges are mapped in whole pages.
const SMALL: u64 = PAGE;
/// Bytes behind each range that stay free.
const GAP: u64 = PAGE;
/// Allocations of this size and more are aligned to it.
const LARGE: u64 = 2 << 20;

/// The address space of a session.
#[derive(Debug)]
pub(super) struct Space {
    base: u64,
    /// The first address that was never used, like all behind it.
    fresh: u64,
    end: u64,
    /// Size of each free range below `fresh`, by its address. Neighbours are merged.
    free: BTreeMap<u64, u64>,
}

impl Space {
    /// An address space of `bytes` from `base` on, all of it free.
    pub(super) const fn new(base: u64, bytes: u64) -> Self {
        Self { base, fresh: base, end: base + bytes, free: BTreeMap::new() }
    }

    /// Bytes of addresses that were ever used.
    pub(super) const fn used(&self) -> u64 {
        self.fresh - self.base
    }

    /// Takes a range for `bytes`, to be given back with the same `bytes`.
    pub(super) fn take(&mut self, bytes: u64) -> Option<u64> {
        self.take_aligned(bytes, if bytes >= LARGE { LARGE } else { SMALL })
    }

    /// Takes a range for `bytes` at a multiple of `alignment`, which is a power of two.
    pub(super) fn take_aligned(&mut self, bytes: u64, alignment: u64) -> Option<u64> {
        let alignment = alignment.max(SMALL);
        let bytes = with_gap(bytes)?;
        let address = self.fresh.checked_next_multiple_of(alignment)?;
        if let Some(fresh) = address.checked_add(bytes)
            && fresh <= self.end
        {
            if address > self.fresh {
                self.put(self.fresh, address - self.fresh);
            }
            self.fresh = fresh;
            return Some(address);
        }
        self.take_used(bytes, alignment)
    }

    /// Takes the first range that fits among those that were freed.
    fn take_used(&mut self, bytes: u64, alignment: u64) -> Option<u64> {
        let fit = |(&start, &room): (&u64, &u64)| {
            let address = start.checked_next_multiple_of(alignment)?;
            (address.checked_add(bytes)? <= start + room).then_some((start, room, address))
        };
        let (start, room, address) = self.free.iter().find_map(fit)?;
        self.free.remove(&start);
        if address > start {
            self.free.insert(start, address - start);
        }
        let (after, end) = (address + bytes, start + room);
        if end > after {
            self.free.insert(after, end - after);
        }
        Some(address)
    }

    /// Gives back a range that [`Space::take`] gave.
    pub(super) fn give_back(&mut self, address: u64, bytes: u64) {
        if let Some(bytes) = with_gap(bytes) {
            self.put(address, bytes);
        }
    }

    /// Adds a free range, merged with its neighbours.
    fn put(&mut self, mut address: u64, mut bytes: u64) {
        if let Some((&before, &room)) = self.free.range(..address).next_back()
            && before + room == address
        {
            self.free.remove(&before);
            address = before;
            bytes += room;
        }
        if let Some(room) = self.free.remove(&(address + bytes)) {
            bytes += room;
        }
        self.free.insert(address, bytes);
    }
}

/// Bytes of addresses that a range of `bytes` takes.
fn with_gap(bytes: u64) -> Option<u64> {
    bytes.checked_next_multiple_of(SMALL)?.checked_add(GAP)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn addresses_are_aligned_and_used_again_last() {
        let mut space = Space::new(0x7000_0000_0000, 8 << 20);
        let one = space.take(1).unwrap();
        let two = space.take(4 << 20).unwrap();
        assert_eq!((one % SMALL, two % LARGE), (0, 0));
        space.give_back(one, 1);
        let three = space.take(1).unwrap();
        assert_ne!(three, one);
        assert_eq!(space.take(4 << 20), None);
        space.give_back(two, 4 << 20);
        // All of it is one free range now, and the first fit is its start.
        assert_eq!(space.take(4 << 20), Some(0x7000_0000_0000));
        assert_eq!((space.take(u64::MAX), space.take(u64::MAX - 2 * PAGE)), (None, None));
        assert_eq!(space.take_aligned(PAGE, 1 << 62), None);
    }

    proptest! {
        #[test]
        fn ranges_never_overlap(steps in prop::collection::vec((1u64..6 << 20, any::<prop::sample::Index>(), any::<bool>()), 1..80)) {
            let (base, bytes) = (0x7000_0000_0000, 32 << 20);
            let mut space = Space::new(base, bytes);
            let mut held: Vec<(u64, u64)> = Vec::new();
            for (size, which, free) in steps {
                if free && !held.is_empty() {
                    let (address, size) = held.swap_remove(which.index(held.len()));
                    space.give_back(address, size);
                } else if let Some(address) = space.take(size) {
                    prop_assert!(address >= base && address + size <= base + bytes);
                    prop_assert!(held.iter().all(|&(a, s)| address + size < a || a + s < address));
                    held.push((address, size));
                }
            }
            for (address, size) in held {
                space.give_back(address, size);
            }
            let fresh = space.fresh;
            prop_assert_eq!(space.free.iter().map(|(&a, &s)| (a, s)).collect::<Vec<_>>(), [(base, fresh - base)]);
        }
    }
}
