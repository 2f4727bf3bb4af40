//! Device memory that does not exist: addresses and accounts.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Alignment of addresses, that of real devices.
const ALIGNMENT: u64 = 512;

/// What mappings of physical memory are made of.
const GRANULARITY: u64 = 2 << 20;

/// The device's account.
#[derive(Debug)]
pub(crate) struct Memory {
    total: u64,
    used: AtomicU64,
    next: AtomicU64,
}

impl Memory {
    /// A device of `total` bytes whose addresses begin at `base`.
    pub(crate) fn new(total: u64, base: u64) -> Self {
        Self { total, used: AtomicU64::new(0), next: AtomicU64::new(base) }
    }

    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }
}

/// What one session holds; given back when dropped.
#[derive(Debug)]
pub(crate) struct Held {
    memory: Arc<Memory>,
    allocations: HashMap<u64, u64>,
    bytes: u64,
}

impl Held {
    pub(crate) fn new(memory: Arc<Memory>) -> Self {
        Self { memory, allocations: HashMap::new(), bytes: 0 }
    }

    /// An address for `bytes`, if the device has that much left. Addresses are never used again.
    pub(crate) fn allocate(&mut self, bytes: u64) -> Option<u64> {
        let bytes = bytes.max(1).checked_next_multiple_of(ALIGNMENT)?;
        let total = self.memory.total;
        let charge = |used: u64| used.checked_add(bytes).filter(|&used| used <= total);
        self.memory.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, charge).ok()?;
        let address = self.memory.next.fetch_add(bytes, Ordering::Relaxed);
        self.allocations.insert(address, bytes);
        self.bytes += bytes;
        Some(address)
    }

    /// Addresses for `bytes` that no memory stands behind, aligned to `alignment`, 0 or a power of two, and
    /// to what mappings are made of. They cost nothing and are never used again.
    pub(crate) fn reserve(&self, bytes: u64, alignment: u64) -> Option<u64> {
        let alignment = alignment.max(GRANULARITY);
        let room = bytes.checked_next_multiple_of(ALIGNMENT)?.checked_add(alignment)?;
        let more = |next: u64| next.checked_add(room);
        let next = self.memory.next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        next.checked_next_multiple_of(alignment)
    }

    /// Gives an allocation back; an address that is none is ignored.
    pub(crate) fn free(&mut self, address: u64) {
        if let Some(bytes) = self.allocations.remove(&address) {
            self.bytes -= bytes;
            self.memory.used.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn count(&self) -> u32 {
        self.allocations.len() as u32
    }

    /// Free and total bytes of the device.
    pub(crate) fn info(&self) -> (u64, u64) {
        (self.memory.total - self.memory.used(), self.memory.total)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.memory.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_device_has_so_much_and_gets_it_back() {
        let memory = Arc::new(Memory::new(1 << 20, 0x7000_0000_0000));
        let mut one = Held::new(Arc::clone(&memory));
        let mut two = Held::new(Arc::clone(&memory));
        let first = one.allocate(1 << 19).unwrap();
        assert_ne!(two.allocate(1 << 19), Some(first));
        assert_eq!(two.allocate(1), None);
        assert_eq!(two.allocate(u64::MAX), None);
        one.free(first);
        one.free(first);
        assert_eq!(memory.used(), 1 << 19);
        assert!(two.allocate(1).is_some());
        drop(two);
        assert_eq!((memory.used(), one.info()), (0, (1 << 20, 1 << 20)));
    }
}
