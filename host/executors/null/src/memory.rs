//! Device memory that does not exist: addresses and byte counts.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use vgpu_device::{AddressSpace, Addresses, Granularity, NoAddresses};

/// Unit in bytes to which sizes are rounded up, as on real devices.
const ALIGNMENT: u64 = 512;

/// Granularity of mappings of physical memory, in bytes.
const GRANULARITY: u64 = 2 << 20;

/// Division of addresses, which is the same as in the soft executor.
const GRAIN: Granularity = Granularity { least: 4096, gap: 4096, large: GRANULARITY };

/// Account of the memory and addresses of a device.
#[derive(Debug)]
pub(crate) struct NullMemory {
    total: u64,
    used: AtomicU64,
    /// The addresses of every session, reserved for this device.
    addresses: Addresses,
}

impl NullMemory {
    /// Makes the memory of a device of `total` bytes with these addresses.
    pub(crate) fn new(total: u64, addresses: Addresses) -> Self {
        Self { total, used: AtomicU64::new(0), addresses }
    }

    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }
}

/// The allocations and reservations of one session. Dropping it frees them.
#[derive(Debug)]
pub(crate) struct SessionMemory {
    memory: Arc<NullMemory>,
    /// Addresses of this session, which are the same in others, as in contexts of a GPU.
    space: AddressSpace,
    /// Sizes of allocations in bytes, by address.
    allocations: HashMap<u64, u64>,
    /// Sizes of reserved ranges in bytes, by address.
    reservations: HashMap<u64, u64>,
    bytes: u64,
}

impl SessionMemory {
    pub(crate) fn new(memory: Arc<NullMemory>) -> Self {
        let range = memory.addresses.range();
        let space = AddressSpace::new(range.base, range.bytes, GRAIN);
        Self { memory, space, allocations: HashMap::new(), reservations: HashMap::new(), bytes: 0 }
    }

    /// Returns an address for `bytes`, if the device has that much left.
    pub(crate) fn allocate(&mut self, bytes: u64) -> Option<u64> {
        let bytes = bytes.max(1).checked_next_multiple_of(ALIGNMENT)?;
        let total = self.memory.total;
        let charge = |used: u64| used.checked_add(bytes).filter(|&used| used <= total);
        self.memory.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, charge).ok()?;
        let Some(address) = self.space.allocate(bytes) else {
            self.memory.used.fetch_sub(bytes, Ordering::Relaxed);
            return None;
        };
        self.allocations.insert(address, bytes);
        self.bytes += bytes;
        Some(address)
    }

    /// Reserves addresses without memory, aligned to `alignment`, which is 0 or a power of two, and to the
    /// granularity of mappings, at `hint` if that is free.
    pub(crate) fn reserve(&mut self, bytes: u64, alignment: u64, hint: u64) -> Result<u64, NoAddresses> {
        let address = self.space.reserve(bytes, alignment.max(GRANULARITY), hint)?;
        self.reservations.insert(address, bytes);
        Ok(address)
    }

    /// Frees a reservation. An address that was not reserved is ignored.
    pub(crate) fn unreserve(&mut self, address: u64) {
        if let Some(bytes) = self.reservations.remove(&address) {
            self.space.free(address, bytes);
        }
    }

    /// Frees an allocation. An address that was not allocated is ignored.
    pub(crate) fn free(&mut self, address: u64) {
        if let Some(bytes) = self.allocations.remove(&address) {
            self.bytes -= bytes;
            self.memory.used.fetch_sub(bytes, Ordering::Relaxed);
            self.space.free(address, bytes);
        }
    }

    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn count(&self) -> u32 {
        self.allocations.len() as u32
    }

    /// Returns the free and total bytes of the device.
    pub(crate) fn info(&self) -> (u64, u64) {
        (self.memory.total - self.memory.used(), self.memory.total)
    }
}

impl Drop for SessionMemory {
    fn drop(&mut self) {
        self.memory.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_device_has_so_much_and_gets_it_back() {
        let memory = Arc::new(NullMemory::new(1 << 20, Addresses::next_in_process()));
        let mut one = SessionMemory::new(Arc::clone(&memory));
        let mut two = SessionMemory::new(Arc::clone(&memory));
        let first = one.allocate(1 << 19).unwrap();
        assert_eq!(two.allocate(1 << 19), Some(first));
        assert_eq!(two.allocate(1), None);
        assert_eq!(two.allocate(u64::MAX), None);
        one.free(first);
        one.free(first);
        assert_eq!(memory.used(), 1 << 19);
        assert!(two.allocate(1).is_some());
        drop(two);
        assert_eq!((memory.used(), one.info()), (0, (1 << 20, 1 << 20)));
    }

    /// Addresses do not run out, however often programs allocate and free.
    #[test]
    fn addresses_stay_within_the_range() {
        let addresses = Addresses::next_in_process();
        let range = addresses.range();
        let memory = Arc::new(NullMemory::new(256 << 30, addresses));
        for _ in 0..20 {
            let mut held = SessionMemory::new(Arc::clone(&memory));
            let large = held.allocate(200 << 30).unwrap();
            assert!(range.holds(large, 200 << 30), "{large:#x}");
            let reserved = held.reserve(300 << 30, 0, 0).unwrap();
            assert!(range.holds(reserved, 300 << 30), "{reserved:#x}");
            assert!(reserved >= large + (200 << 30) || reserved + (300 << 30) <= large);
            assert!(held.reserve(1 << 40, 0, 0).is_err());
            held.unreserve(reserved);
            held.unreserve(reserved);
            let reserved = held.reserve(300 << 30, 1 << 30, 0).unwrap();
            assert_eq!(reserved % (1 << 30), 0);
            assert!(range.holds(reserved, 300 << 30), "{reserved:#x}");
        }
        assert_eq!(memory.used(), 0);
    }
}
