//! The guest's memory as the VMM shares it: which file holds the bytes of a guest-physical address.
//!
//! A VMM maps and unmaps whole regions while the guest runs. Its BIOS moves some of them.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, PoisonError, RwLock, RwLockWriteGuard};

use vgpu_device::GuestMemory;

/// Memory of the guest in a file of the VMM.
#[derive(Clone, Debug)]
pub struct Region {
    /// File of the VMM that holds the bytes.
    pub file: Arc<File>,
    /// Offset of the region in the file.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// Whether the device may write there.
    pub writable: bool,
}

/// The regions, by guest-physical address. They do not overlap.
#[derive(Debug, Default)]
pub struct Ram(BTreeMap<u64, Region>);

/// The regions, shared by a VMM's thread that changes them and a device that accesses them, possibly at the
/// same time.
#[derive(Clone, Debug, Default)]
pub struct SharedRam(Arc<RwLock<Ram>>);

impl SharedRam {
    /// Locks the regions for a change.
    pub(crate) fn change(&self) -> RwLockWriteGuard<'_, Ram> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether a machine shares memory now.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        !self.0.read().unwrap_or_else(PoisonError::into_inner).0.is_empty()
    }

    /// Returns the regions by address, for a process that takes them over.
    pub(crate) fn regions(&self) -> Vec<(u64, Region)> {
        let ram = self.0.read().unwrap_or_else(PoisonError::into_inner);
        ram.0.iter().map(|(address, region)| (*address, region.clone())).collect()
    }

    /// Returns whether a region starts at `address` and has this size.
    pub(crate) fn is_mapped(&self, address: u64, bytes: u64) -> bool {
        let ram = self.0.read().unwrap_or_else(PoisonError::into_inner);
        ram.0.get(&address).is_some_and(|region| region.bytes == bytes)
    }

    /// Calls `what` with the region that holds `bytes` from `address` on, and their offset.
    fn with<T>(&self, address: u64, bytes: u64, what: impl FnOnce(&Region, u64) -> T) -> Option<T> {
        let ram = self.0.read().unwrap_or_else(PoisonError::into_inner);
        ram.find(address, bytes).map(|(region, at)| what(region, at))
    }
}

/// Accesses read and write the file. A version 1 device copies one payload per call, so a mapping would save
/// little.
impl GuestMemory for SharedRam {
    fn map(&self, address: u64, bytes: u64) -> bool {
        self.with(address, bytes, |region, _| region.writable).unwrap_or(false)
    }

    fn read(&self, address: u64, into: &mut [u8]) -> bool {
        let bytes = into.len() as u64;
        self.with(address, bytes, |region, at| region.file.read_exact_at(into, at).is_ok()).unwrap_or(false)
    }

    fn write(&self, address: u64, from: &[u8]) -> bool {
        let write = |region: &Region, at| region.writable && region.file.write_all_at(from, at).is_ok();
        self.with(address, from.len() as u64, write).unwrap_or(false)
    }

    fn file(&self, address: u64, bytes: u64) -> Option<(File, u64)> {
        let file =
            |region: &Region, at| Some((region.file.try_clone().ok()?, at)).filter(|_| region.writable);
        self.with(address, bytes, file).flatten()
    }
}

/// Maximum number of regions: the protocol's, if none is negotiated.
const MAX_REGIONS: usize = 65_535;

/// Reason for which a region is not mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the texts say it")]
pub enum MapError {
    #[error("it is empty, or wraps around the end of the addresses or of its file")]
    NoEnd,
    #[error("it overlaps another one")]
    Overlaps,
    #[error("there are {MAX_REGIONS} already")]
    TooMany,
}

impl Ram {
    /// Adds a region that the VMM has mapped.
    pub fn map(&mut self, address: u64, region: Region) -> Result<(), MapError> {
        // The last byte, not the byte after it, because a region may end where the addresses end.
        let last = region.bytes.checked_sub(1).and_then(|more| address.checked_add(more));
        let last = last.ok_or(MapError::NoEnd)?;
        region.offset.checked_add(region.bytes).ok_or(MapError::NoEnd)?;
        if let Some((start, below)) = self.0.range(..=last).next_back()
            && start + (below.bytes - 1) >= address
        {
            return Err(MapError::Overlaps);
        }
        if self.0.len() >= MAX_REGIONS {
            return Err(MapError::TooMany);
        }
        self.0.insert(address, region);
        Ok(())
    }

    /// Removes all regions that lie within `bytes` from `address` on. `bytes` may reach the end of all
    /// addresses. Returns false, and removes none, if a part of a region lies there.
    #[must_use]
    pub fn unmap(&mut self, address: u64, bytes: u64) -> bool {
        let end = u128::from(address) + u128::from(bytes);
        let lies_before = |start: u64| u128::from(start) < end;
        let end_of = |start: u64, region: &Region| u128::from(start) + u128::from(region.bytes);
        // Regions do not overlap, so that only the last that starts before either end can reach beyond it.
        let before = self.0.range(..address).next_back();
        let last = self.0.range(address..).take_while(|(start, _)| lies_before(**start)).last();
        let reaches_in = before.is_some_and(|(start, region)| end_of(*start, region) > address.into());
        let reaches_out = last.is_some_and(|(start, region)| end_of(*start, region) > end);
        if bytes > 0 && (reaches_in || reaches_out) {
            return false;
        }
        self.0.retain(|start, _| *start < address || !lies_before(*start));
        true
    }

    /// Removes all regions, because the machine is gone.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns the region that holds `bytes` from `address` on, and their offset in its file.
    pub fn find(&self, address: u64, bytes: u64) -> Option<(&Region, u64)> {
        let (start, region) = self.0.range(..=address).next_back()?;
        let within = address - start;
        let room = region.bytes.checked_sub(within)?;
        (bytes <= room).then_some((region, region.offset + within))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn region(offset: u64, bytes: u64) -> Region {
        let file = Arc::new(File::open("/dev/null").unwrap());
        Region { file, offset, bytes, writable: true }
    }

    /// Returns the total size of the memory in bytes.
    fn bytes(ram: &Ram) -> u64 {
        ram.0.values().map(|region| region.bytes).sum()
    }

    #[test]
    fn addresses_are_found_in_the_file() {
        let mut ram = Ram::default();
        ram.map(0, region(0, 0xa_0000)).unwrap();
        ram.map(0x1_0000_0000, region(0x8000_0000, 0x4000_0000)).unwrap();
        assert_eq!(ram.find(0x9_ffff, 1).unwrap().1, 0x9_ffff);
        assert!(ram.find(0x9_ffff, 2).is_none() && ram.find(0xa_0000, 1).is_none());
        assert_eq!(ram.find(0x1_0000_1000, 0x1000).unwrap().1, 0x8000_1000);
        assert_eq!(bytes(&ram), 0x400a_0000);
        assert!(ram.unmap(0, 0xa_0000));
        assert!(ram.find(0, 1).is_none() && ram.find(0x1_0000_0000, 1).is_some());
        assert!(ram.unmap(0, u64::MAX));
        assert_eq!(bytes(&ram), 0);
    }

    #[test]
    fn pages_are_in_a_file_that_may_be_written() {
        let shared = SharedRam::default();
        shared.change().map(0x1000, region(0x5000, 0x2000)).unwrap();
        shared.change().map(0x8000, Region { writable: false, ..region(0, 0x1000) }).unwrap();
        assert_eq!(shared.file(0x2000, 0x1000).unwrap().1, 0x6000);
        assert!(shared.file(0x2000, 0x1001).is_none() && shared.file(0, 1).is_none());
        assert!(shared.file(0x8000, 0x1000).is_none(), "read-only memory");
    }

    #[test]
    fn what_overlaps_or_has_no_end_is_refused() {
        let mut ram = Ram::default();
        ram.map(0x1000, region(0, 0x1000)).unwrap();
        for (address, offset, bytes) in [
            (0x1fff, 0, 1),
            (0, 0, 0x1001),
            (0x0, 0, 0x10000),
            (0x5000, 0, 0),
            (u64::MAX, 0, 2),
            (0x5000, u64::MAX, 1),
        ] {
            assert!(ram.map(address, region(offset, bytes)).is_err(), "{address:#x} {bytes:#x}");
        }
        ram.map(u64::MAX - 0xfff, region(0, 0x1000)).unwrap();
        assert!(ram.find(u64::MAX, 1).is_some() && ram.find(u64::MAX, 2).is_none());
        assert!(ram.unmap(u64::MAX - 0xfff, 0x1000));
        ram.map(0x2000, region(0, 0x1000)).unwrap();
    }

    #[test]
    fn a_part_of_a_region_is_not_unmapped() {
        let mut ram = Ram::default();
        ram.map(0x1000, region(0, 0x2000)).unwrap();
        ram.map(0x3000, region(0, 0x1000)).unwrap();
        for (address, bytes) in
            [(0x1000, 0x1000), (0x2000, 0x1000), (0x2000, 0x2000), (0, 0x2000), (0x1000, 0x2fff)]
        {
            assert!(!ram.unmap(address, bytes), "{address:#x} {bytes:#x}");
            assert_eq!(self::bytes(&ram), 0x3000, "{address:#x} {bytes:#x}");
        }
        // What is not mapped can be unmapped, and so can both at once.
        assert!(ram.unmap(0x4000, 0x1000) && ram.unmap(0, 0x1000) && ram.unmap(0x2000, 0));
        assert!(ram.unmap(0, 0x4000));
        assert_eq!(self::bytes(&ram), 0);
    }

    proptest! {
        #[test]
        fn no_order_of_maps_and_unmaps_breaks_it(steps in proptest::collection::vec((any::<bool>(), any::<u64>(), any::<u64>()), 0..30)) {
            let mut ram = Ram::default();
            for (map, address, bytes) in steps {
                if map {
                    let _ = ram.map(address, region(0, bytes));
                } else {
                    let _ = ram.unmap(address, bytes);
                }
                if let Some((region, at)) = ram.find(address, bytes) {
                    prop_assert!(at + bytes <= region.offset + region.bytes);
                }
            }
        }
    }
}
