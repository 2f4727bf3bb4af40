//! Allocator of device addresses. Addresses of freed memory are reused only when all others have been used,
//! so that a stale pointer most likely points at nothing. A gap after each range stays free, so that a
//! pointer beyond the end points at nothing either.

use std::collections::BTreeMap;

/// Granularity of an address space, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granularity {
    /// Power of two at whose multiples ranges start and end.
    pub least: u64,
    /// Number of bytes after each range that stay free, a multiple of `least`.
    pub gap: u64,
    /// Power of two that separates large ranges: ranges of this size and more start at multiples of it.
    pub large: u64,
}

/// Error for a reservation for which no free range of an address space is long enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "reserve {} MiB of device addresses: {} MiB are left, {} MiB of them in one piece",
    .bytes >> 20,
    .left >> 20,
    .longest >> 20
)]
pub struct NoAddresses {
    /// Requested size in bytes.
    pub bytes: u64,
    /// Number of free bytes in all free ranges together.
    pub left: u64,
    /// Size in bytes of the longest reservation that is possible at the requested alignment.
    pub longest: u64,
}

/// Allocates ranges of a range of addresses.
#[derive(Debug, PartialEq, Eq)]
pub struct AddressSpace {
    base: u64,
    /// First address that was never used. All addresses after it are unused too.
    fresh: u64,
    end: u64,
    grain: Granularity,
    /// Sizes of the free ranges below `fresh`, by address. Adjacent ranges are merged.
    free: BTreeMap<u64, u64>,
}

impl AddressSpace {
    /// Makes an address space of `bytes` from `base` on, all of it free. Both are multiples of
    /// [`Granularity::least`].
    #[must_use]
    pub const fn new(base: u64, bytes: u64, grain: Granularity) -> Self {
        Self { base, fresh: base, end: base + bytes, grain, free: BTreeMap::new() }
    }

    /// Returns the number of bytes of addresses that were ever used.
    #[must_use]
    pub const fn used(&self) -> u64 {
        self.fresh - self.base
    }

    /// Allocates a range for `bytes`, which is freed with the same `bytes`.
    pub fn allocate(&mut self, bytes: u64) -> Option<u64> {
        let Granularity { least, large, .. } = self.grain;
        self.allocate_aligned(bytes, if bytes >= large { large } else { least })
    }

    /// Allocates a range for `bytes` at a multiple of `alignment`, which is a power of two.
    pub fn allocate_aligned(&mut self, bytes: u64, alignment: u64) -> Option<u64> {
        let alignment = alignment.max(self.grain.least);
        let bytes = self.with_gap(bytes)?;
        let address = self.fresh.checked_next_multiple_of(alignment)?;
        self.take_fresh(address, bytes).or_else(|| self.take_used(bytes, alignment))
    }

    /// Allocates the range of `bytes` at `address`, if all of it is free.
    pub fn allocate_at(&mut self, address: u64, bytes: u64) -> Option<u64> {
        if address < self.base || !address.is_multiple_of(self.grain.least) {
            return None;
        }
        let bytes = self.with_gap(bytes)?;
        if address >= self.fresh {
            return self.take_fresh(address, bytes);
        }
        let (&start, &room) = self.free.range(..=address).next_back()?;
        if address.checked_add(bytes)? > start + room {
            return None;
        }
        self.split(start, room, address, bytes);
        Some(address)
    }

    /// Allocates a range for `bytes` at a multiple of `alignment`, a power of two. Prefers `hint`, if that is
    /// such a multiple other than 0 and free.
    pub fn reserve(&mut self, bytes: u64, alignment: u64, hint: u64) -> Result<u64, NoAddresses> {
        let wished = hint != 0 && hint.is_multiple_of(alignment);
        wished
            .then(|| self.allocate_at(hint, bytes))
            .flatten()
            .or_else(|| self.allocate_aligned(bytes, alignment))
            .ok_or_else(|| self.no_addresses(bytes, alignment))
    }

    /// Describes the free addresses, for a reservation that is refused.
    fn no_addresses(&self, bytes: u64, alignment: u64) -> NoAddresses {
        let Granularity { least, gap, .. } = self.grain;
        let free = || self.free.iter().map(|(&start, &room)| (start, room));
        let fresh = (self.fresh, self.end - self.fresh);
        let room = |(start, room): (u64, u64)| {
            let skipped = start.checked_next_multiple_of(alignment.max(least))? - start;
            room.checked_sub(skipped)?.checked_sub(gap)
        };
        NoAddresses {
            bytes,
            left: free().map(|(_, room)| room).sum::<u64>() + fresh.1,
            longest: free().chain([fresh]).filter_map(room).max().unwrap_or(0),
        }
    }

    /// Removes the last `bytes`, a multiple of [`Granularity::least`], from the space. Returns false and
    /// changes nothing if something there is allocated.
    pub fn give_up_end(&mut self, bytes: u64) -> bool {
        let Some(end) = self.end.checked_sub(bytes).filter(|&end| end >= self.base) else { return false };
        if end < self.fresh {
            // The range before the unused addresses has to be free from `end` on.
            let last = self.free.last_key_value().map(|(&start, &room)| (start, room));
            let Some((start, _)) = last.filter(|(start, room)| *start <= end && start + room == self.fresh)
            else {
                return false;
            };
            self.free.remove(&start);
            if end > start {
                self.free.insert(start, end - start);
            }
            self.fresh = end;
        }
        self.end = end;
        true
    }

    /// Adds `bytes` before the first address, a multiple of [`Granularity::least`]. They count as used
    /// before.
    pub fn extend_front(&mut self, bytes: u64) {
        self.base -= bytes;
        self.put(self.base, bytes);
    }

    /// Allocates addresses that were never used. Those skipped for alignment stay free.
    fn take_fresh(&mut self, address: u64, bytes: u64) -> Option<u64> {
        let fresh = address.checked_add(bytes).filter(|&fresh| fresh <= self.end)?;
        if address > self.fresh {
            self.put(self.fresh, address - self.fresh);
        }
        self.fresh = fresh;
        Some(address)
    }

    /// Allocates the first range that fits among those that were freed.
    fn take_used(&mut self, bytes: u64, alignment: u64) -> Option<u64> {
        let fit = |(&start, &room): (&u64, &u64)| {
            let address = start.checked_next_multiple_of(alignment)?;
            (address.checked_add(bytes)? <= start + room).then_some((start, room, address))
        };
        let (start, room, address) = self.free.iter().find_map(fit)?;
        self.split(start, room, address, bytes);
        Some(address)
    }

    /// Allocates `bytes` at `address` out of the free range of `room` bytes at `start`.
    fn split(&mut self, start: u64, room: u64, address: u64, bytes: u64) {
        self.free.remove(&start);
        if address > start {
            self.free.insert(start, address - start);
        }
        let (after, end) = (address + bytes, start + room);
        if end > after {
            self.free.insert(after, end - after);
        }
    }

    /// Frees a range that was allocated with the same `bytes`.
    pub fn free(&mut self, address: u64, bytes: u64) {
        if let Some(bytes) = self.with_gap(bytes) {
            self.put(address, bytes);
        }
    }

    /// Adds a free range and merges it with adjacent ones.
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

    /// Returns the number of bytes of addresses that a range of `bytes` occupies.
    fn with_gap(&self, bytes: u64) -> Option<u64> {
        bytes.checked_next_multiple_of(self.grain.least)?.checked_add(self.grain.gap)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PAGE: u64 = 4096;
    const GRAIN: Granularity = Granularity { least: PAGE, gap: PAGE, large: 2 << 20 };
    const BASE: u64 = 0x7000_0000_0000;

    #[test]
    fn addresses_are_aligned_and_used_again_last() {
        let mut space = AddressSpace::new(BASE, 8 << 20, GRAIN);
        let one = space.allocate(1).unwrap();
        let two = space.allocate(4 << 20).unwrap();
        assert_eq!((one % GRAIN.least, two % GRAIN.large), (0, 0));
        space.free(one, 1);
        let three = space.allocate(1).unwrap();
        assert_ne!(three, one);
        assert_eq!(space.allocate(4 << 20), None);
        space.free(two, 4 << 20);
        // Everything is one free range now, and the first fit is its start.
        assert_eq!(space.allocate(4 << 20), Some(BASE));
        assert_eq!((space.allocate(u64::MAX), space.allocate(u64::MAX - 2 * PAGE)), (None, None));
        assert_eq!(space.allocate_aligned(PAGE, 1 << 62), None);
    }

    #[test]
    fn a_place_is_given_if_it_is_free() {
        let mut space = AddressSpace::new(BASE, 8 << 20, GRAIN);
        assert_eq!(space.allocate_at(BASE + 0x10_0000, 0x1000), Some(BASE + 0x10_0000));
        // There is room before it, and a gap after it.
        assert_eq!(space.allocate_at(BASE, 0xf_f000), Some(BASE));
        for taken in [BASE, BASE + 0xf_f000, BASE + 0x10_0000, BASE + 0x10_1000] {
            assert_eq!(space.allocate_at(taken, 1), None, "{taken:#x}");
        }
        for outside in [BASE - PAGE, BASE + 1, BASE + (8 << 20), u64::MAX - PAGE + 1] {
            assert_eq!(space.allocate_at(outside, 1), None, "{outside:#x}");
        }
        space.free(BASE, 0xf_f000);
        assert_eq!(space.allocate_at(BASE + 0x2000, 0x1000), Some(BASE + 0x2000));
        assert_eq!(space.allocate_at(BASE, 0x1000), Some(BASE));
    }

    #[test]
    fn a_refused_reservation_says_what_is_left() {
        let mut space = AddressSpace::new(BASE, 8 << 20, GRAIN);
        let one = space.reserve(2 << 20, 2 << 20, 0).unwrap();
        let two = space.reserve(2 << 20, 2 << 20, BASE + (4 << 20)).unwrap();
        assert_eq!((one, two), (BASE, BASE + (4 << 20)), "the hint is followed");
        // Free ranges are between the two and after the second, each less the gap before it.
        let left = (4 << 20) - 2 * PAGE;
        let refused = space.reserve(4 << 20, PAGE, 0).unwrap_err();
        assert_eq!(refused, NoAddresses { bytes: 4 << 20, left, longest: (2 << 20) - 2 * PAGE });
        let text = refused.to_string();
        assert_eq!(text, "reserve 4 MiB of device addresses: 3 MiB are left, 1 MiB of them in one piece");
        let aligned = space.reserve(2 << 20, 2 << 20, 0).unwrap_err();
        assert_eq!(aligned, NoAddresses { bytes: 2 << 20, left, longest: 0 });
        space.free(one, 2 << 20);
        assert_eq!(space.reserve(2 << 20, 2 << 20, one), Ok(one));
    }

    #[test]
    fn the_border_of_two_spaces_moves_if_nothing_is_there() {
        let mut low = AddressSpace::new(BASE, 8 << 20, GRAIN);
        let mut high = AddressSpace::new(BASE + (8 << 20), 8 << 20, GRAIN);
        let (below, above) = (low.allocate(1 << 20).unwrap(), high.allocate(6 << 20).unwrap());
        assert_eq!(high.allocate(4 << 20), None);
        assert!(!low.give_up_end(8 << 20), "something is there");
        assert!(low.give_up_end(6 << 20));
        high.extend_front(6 << 20);
        let grown = high.allocate(4 << 20).unwrap();
        assert_eq!((grown, high.used()), (BASE + (2 << 20), (12 << 20) + PAGE));
        // Ranges that were used and freed are given up, too.
        let more = low.allocate(512 << 10).unwrap();
        low.free(more, 512 << 10);
        low.free(below, 1 << 20);
        assert!(!low.give_up_end(4 << 20), "more than there is");
        assert!(low.give_up_end(2 << 20));
        assert_eq!((low.allocate(PAGE), low.used()), (None, 0));
        high.extend_front(2 << 20);
        high.free(grown, 4 << 20);
        high.free(above, 6 << 20);
        assert_eq!(high.allocate(14 << 20), Some(BASE));
    }

    proptest! {
        #[test]
        fn ranges_never_overlap(
            steps in prop::collection::vec(
                (1u64..6 << 20, any::<prop::sample::Index>(), any::<bool>(), any::<bool>()), 1..80
            )
        ) {
            let bytes = 32 << 20;
            let mut space = AddressSpace::new(BASE, bytes, GRAIN);
            let mut held: Vec<(u64, u64)> = Vec::new();
            for (size, which, free, wish) in steps {
                let at = BASE + which.index(bytes as usize / PAGE as usize) as u64 * PAGE;
                if free && !held.is_empty() {
                    let (address, size) = held.swap_remove(which.index(held.len()));
                    space.free(address, size);
                } else if let Some(address) = if wish { space.allocate_at(at, size) } else { space.allocate(size) } {
                    prop_assert!(address >= BASE && address + size <= BASE + bytes);
                    prop_assert!(!wish || address == at);
                    prop_assert!(held.iter().all(|&(a, s)| address + size < a || a + s < address));
                    held.push((address, size));
                }
            }
            for (address, size) in held {
                space.free(address, size);
            }
            let fresh = space.fresh;
            let free = space.free.iter().map(|(&a, &s)| (a, s)).collect::<Vec<_>>();
            prop_assert_eq!(free, if fresh == BASE { vec![] } else { vec![(BASE, fresh - BASE)] });
        }
    }
}
