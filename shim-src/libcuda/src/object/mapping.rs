//! The mappings in a device's reserved address ranges. The guest tracks them so that no invalid range reaches
//! the host, which would report it late.

use std::collections::BTreeMap;

/// Physical memory that is mapped at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First device address of the mapping.
    pub start: u64,
    /// Size of the mapping in bytes.
    pub bytes: u64,
    /// Handle of the physical memory.
    pub physical: u64,
    /// `CUmemAccess_flags` of the mapping: 0 for none, 1 for read, 3 for read and write.
    pub access: u32,
}

/// Mappings by their first address. No two of them overlap.
#[derive(Debug, Default)]
pub struct Mappings(BTreeMap<u64, Mapping>);

impl Mappings {
    /// Returns the mapping that contains an address.
    pub fn find(&self, address: u64) -> Option<Mapping> {
        let (_, mapping) = self.0.range(..=address).next_back()?;
        (address - mapping.start < mapping.bytes).then_some(*mapping)
    }

    /// Returns whether all of the `bytes` bytes from `start`, which end within the address space, are
    /// unmapped.
    pub fn is_free(&self, start: u64, bytes: u64) -> bool {
        let before = self.0.range(..start + bytes).next_back();
        before.is_none_or(|(_, mapping)| mapping.start + mapping.bytes <= start)
    }

    /// Adds a mapping without access rights to a range in which nothing is mapped.
    pub fn add(&mut self, start: u64, bytes: u64, physical: u64) {
        self.0.insert(start, Mapping { start, bytes, physical, access: 0 });
    }

    /// Returns whether all `bytes` bytes from `address` are mapped and can be accessed.
    pub fn reach(&self, address: u64, bytes: u64) -> bool {
        let (mut at, end) = (address, address.saturating_add(bytes));
        loop {
            match self.find(at) {
                Some(mapping) if mapping.access != 0 => at = mapping.start + mapping.bytes,
                _ => return false,
            }
            if at >= end {
                return true;
            }
        }
    }

    /// Returns the starts of the mappings that make up a range, or `None` if the range does not consist of
    /// whole mappings.
    fn whole(&self, start: u64, bytes: u64) -> Option<Vec<u64>> {
        let end = start.checked_add(bytes)?;
        let mut at = start;
        let mut found = Vec::new();
        for mapping in self.0.range(start..end).map(|(_, mapping)| mapping) {
            if mapping.start != at {
                return None;
            }
            at += mapping.bytes;
            found.push(mapping.start);
        }
        (at == end && bytes != 0).then_some(found)
    }

    /// Changes the access rights of whole mappings. Returns false if the range does not consist of whole
    /// mappings.
    pub fn set_access(&mut self, start: u64, bytes: u64, access: u32) -> bool {
        let Some(found) = self.whole(start, bytes) else { return false };
        for start in found {
            if let Some(mapping) = self.0.get_mut(&start) {
                mapping.access = access;
            }
        }
        true
    }

    /// Removes whole mappings and returns the handles of their physical memory. Returns `None` if the range
    /// does not consist of whole mappings.
    pub fn unmap(&mut self, start: u64, bytes: u64) -> Option<Vec<u64>> {
        let found = self.whole(start, bytes)?;
        Some(found.iter().filter_map(|start| self.0.remove(start)).map(|mapping| mapping.physical).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_whole_neighbours_are_a_range() {
        let mut mappings = Mappings::default();
        mappings.add(100, 50, 1);
        mappings.add(150, 50, 2);
        mappings.add(300, 50, 3);
        assert!(!mappings.set_access(100, 99, 3) && !mappings.set_access(100, 250, 3));
        assert!(!mappings.set_access(120, 30, 3) && !mappings.set_access(100, 0, 3));
        assert!(!mappings.reach(100, 1), "no rights yet");
        assert!(mappings.set_access(100, 100, 3));
        assert!(mappings.reach(100, 100) && mappings.reach(199, 1));
        assert!(!mappings.reach(100, 101) && !mappings.reach(99, 2) && !mappings.reach(199, u64::MAX));
        assert_eq!(mappings.unmap(90, 60), None);
        assert_eq!(mappings.unmap(100, 100), Some(vec![1, 2]));
        assert!(mappings.is_free(100, 200) && !mappings.is_free(100, 201));
    }

    const SPACE: usize = 40;

    proptest! {
        /// Compares the mappings with a simple list of what is mapped at each unit.
        #[test]
        fn mappings_agree_with_a_list(steps in prop::collection::vec((0..5u8, 0..SPACE, 1..9usize), 1..60)) {
            let mut mappings = Mappings::default();
            let mut list: Vec<Option<(u64, u64, u32)>> = vec![None; SPACE + 9];
            for (id, (what, start, count)) in (1..).zip(steps) {
                let (at, bytes, end) = (start as u64, count as u64, start + count);
                // Whole: no unit's mapping reaches out of the range, and every unit is mapped.
                let range: Vec<_> = list[start..end].to_vec();
                let inside = |unit: &Option<(u64, u64, u32)>| unit.is_some_and(|(id, _, _)| {
                    list.iter().enumerate().all(|(i, u)| u.is_none_or(|u| u.0 != id) || (start..end).contains(&i))
                });
                let whole = range.iter().all(inside);
                match what {
                    0 | 1 => {
                        let free = range.iter().all(Option::is_none);
                        prop_assert_eq!(mappings.is_free(at, bytes), free);
                        if free {
                            mappings.add(at, bytes, id * 10);
                            list[start..end].fill(Some((id, id * 10, 0)));
                        }
                    }
                    2 => {
                        prop_assert_eq!(mappings.set_access(at, bytes, 3), whole);
                        if whole {
                            list[start..end].iter_mut().flatten().for_each(|unit| unit.2 = 3);
                        }
                    }
                    3 => {
                        let mut expected: Vec<u64> = range.iter().flatten().map(|unit| unit.1).collect();
                        expected.dedup();
                        prop_assert_eq!(mappings.unmap(at, bytes), whole.then_some(expected));
                        if whole {
                            list[start..end].fill(None);
                        }
                    }
                    _ => {
                        let reach = range.iter().all(|unit| unit.is_some_and(|unit| unit.2 != 0));
                        prop_assert_eq!(mappings.reach(at, bytes), reach);
                        prop_assert_eq!(mappings.find(at).map(|m| m.physical), list[start].map(|unit| unit.1));
                    }
                }
            }
        }
    }
}
