//! Ranges of device addresses that the process owns, so that queries about an address need no message.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{RwLockReadGuard, RwLockWriteGuard};

use crate::object::mapping::Mappings;
use crate::sync::RwLock;

/// Origin of a range of device addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The range was allocated by `cuMemAlloc` or a similar function.
    Allocation,
    /// The range was allocated in stream order from the pool with this handle.
    Pool(usize),
    /// The range was reserved by `cuMemAddressReserve`, with or without memory mapped in it.
    Reservation,
    /// The range is a variable of the module with this number.
    Variable(u32),
}

/// A range of device addresses that the process owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// First device address of the range.
    pub start: u64,
    /// Size of the range in bytes.
    pub bytes: u64,
    /// Origin of the range.
    pub source: Source,
    /// Handle of the context with which the range ends.
    pub context: usize,
    /// A number that no other range of the process has had.
    pub id: u64,
}

impl Range {
    /// Returns whether the range is memory that can be freed.
    pub fn is_allocation(&self) -> bool {
        matches!(self.source, Source::Allocation | Source::Pool(_))
    }

    /// Returns whether all `bytes` bytes from `address` are in the range.
    fn holds(&self, address: u64, bytes: u64) -> bool {
        let offset = address.wrapping_sub(self.start);
        offset < self.bytes && bytes <= self.bytes - offset
    }
}

/// The ranges of a device's addresses that this process owns.
#[derive(Debug, Default)]
pub struct Memory {
    ranges: RwLock<BTreeMap<u64, Range>>,
    /// The mappings in the reservations.
    mappings: RwLock<Mappings>,
}

/// Returns a number that no other allocation of device or host memory has had.
pub fn next_id() -> u64 {
    static IDS: AtomicU64 = AtomicU64::new(0);
    IDS.fetch_add(1, Ordering::Relaxed) + 1
}

impl Memory {
    /// Adds a range of addresses.
    pub fn add(&self, start: u64, bytes: u64, source: Source, context: usize) {
        let range = Range { start, bytes, source, context, id: next_id() };
        self.ranges.write().insert(start, range);
    }

    /// Returns the range that contains an address.
    pub fn find(&self, address: u64) -> Option<Range> {
        let ranges = self.ranges.read();
        let (_, range) = ranges.range(..=address).next_back()?;
        range.holds(address, 0).then_some(*range)
    }

    /// Returns whether all `bytes` bytes from `address` are in one range.
    pub fn holds(&self, address: u64, bytes: u64) -> bool {
        let ranges = self.ranges.read();
        ranges.range(..=address).next_back().is_some_and(|(_, range)| range.holds(address, bytes))
    }

    /// Returns whether all `bytes` bytes from `address` are in one range and have memory.
    pub fn has(&self, address: u64, bytes: u64) -> bool {
        let ranges = self.ranges.read();
        let Some((_, range)) = ranges.range(..=address).next_back() else { return false };
        range.holds(address, bytes)
            && (range.source != Source::Reservation || self.mappings.read().reach(address, bytes))
    }

    /// Locks the mappings for reading.
    pub fn mappings(&self) -> RwLockReadGuard<'_, Mappings> {
        self.mappings.read()
    }

    /// Locks the mappings for changes.
    pub fn mappings_mut(&self) -> RwLockWriteGuard<'_, Mappings> {
        self.mappings.write()
    }

    /// Removes and returns the range that starts at `start`, if `expected` accepts it.
    pub fn remove(&self, start: u64, expected: impl Fn(&Range) -> bool) -> Option<Range> {
        let mut ranges = self.ranges.write();
        if !ranges.get(&start).is_some_and(expected) {
            return None;
        }
        ranges.remove(&start)
    }

    /// Removes and returns the ranges that `which` accepts.
    pub fn take_all(&self, which: impl Fn(&Range) -> bool) -> Vec<Range> {
        let mut ranges = self.ranges.write();
        let taken: Vec<Range> = ranges.values().copied().filter(|range| which(range)).collect();
        for range in &taken {
            ranges.remove(&range.start);
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ranges_know_their_ends() {
        let memory = Memory::default();
        memory.add(0x1000, 0x100, Source::Allocation, 7);
        memory.add(0x2000, 0x10, Source::Variable(3), 7);
        assert!(memory.holds(0x1000, 0x100) && !memory.holds(0x1000, 0x101));
        assert!(memory.holds(0x10ff, 1) && !memory.holds(0x1100, 1) && !memory.holds(0xfff, 1));
        assert!(!memory.holds(0x10ff, u64::MAX));
        assert_eq!(memory.find(0x200f).map(|r| r.start), Some(0x2000));
        assert_eq!(memory.find(0x2010), None);
        assert_eq!(memory.find(0), None);
        assert!(
            memory.remove(0x2000, |r| r.source == Source::Allocation).is_none(),
            "a variable is not freed"
        );
        assert!(memory.remove(0x1010, |_| true).is_none(), "nor the middle of an allocation");
        assert!(memory.remove(0x1000, |_| true).is_some());
        assert!(!memory.holds(0x1000, 1));
    }

    proptest! {
        #[test]
        fn find_agrees_with_a_list(starts in prop::collection::btree_map(0_u64..64, 1_u64..16, 0..12), at in 0_u64..1200) {
            let memory = Memory::default();
            for (&start, &bytes) in &starts {
                memory.add(start * 16, bytes, Source::Allocation, 1);
            }
            let expected = starts.iter().find(|&(&s, &b)| (s * 16..s * 16 + b).contains(&at)).map(|(&s, _)| s * 16);
            prop_assert_eq!(memory.find(at).map(|range| range.start), expected);
        }
    }
}
