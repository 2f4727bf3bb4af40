//! Device memory: an account that all sessions share, and allocations that each has for itself.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use vgpu_device::{ADDRESS_SPAN, SharedSlice};
use vm_memory::{MmapRegion, VolatileMemory};

use crate::space::Space;

/// What an allocation costs is a multiple of this: the host's pages.
const PAGE: u64 = 4096;

/// The device has no room, or the host has not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("allocate device memory: there is no room")]
pub(crate) struct OutOfMemory;

/// An access to device addresses that are not, or not all, within one allocation of the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("access {bytes} bytes at device address {address:#x}: not allocated")]
pub(crate) struct Illegal {
    address: u64,
    bytes: u64,
}

/// The memory of a device.
#[derive(Debug)]
pub(crate) struct DeviceMemory {
    total: u64,
    used: AtomicU64,
    space: Mutex<Space>,
}

impl DeviceMemory {
    pub(crate) fn new(total: u64, base: u64) -> Self {
        Self { total, used: AtomicU64::new(0), space: Mutex::new(Space::new(base, ADDRESS_SPAN)) }
    }

    pub(crate) const fn total(&self) -> u64 {
        self.total
    }

    /// Bytes in use by all sessions.
    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    fn charge(&self, bytes: u64) -> Result<(), OutOfMemory> {
        let more = |used: u64| used.checked_add(bytes).filter(|&used| used <= self.total);
        let charged = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        charged.map(drop).map_err(|_| OutOfMemory)
    }

    fn with_space<T>(&self, act: impl FnOnce(&mut Space) -> T) -> T {
        act(&mut self.space.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Memory of its own mapping: it reads zeros at first, and goes back to the host when it is dropped.
#[derive(Debug)]
struct Allocation {
    address: u64,
    bytes: u64,
    charged: u64,
    region: MmapRegion<()>,
    device: Arc<DeviceMemory>,
}

impl Allocation {
    fn new(device: &Arc<DeviceMemory>, bytes: u64) -> Result<Self, OutOfMemory> {
        let charged = bytes.checked_next_multiple_of(PAGE).ok_or(OutOfMemory)?;
        let size = usize::try_from(charged).map_err(|_| OutOfMemory)?;
        device.charge(charged)?;
        let region = MmapRegion::new(size);
        let address = region.is_ok().then(|| device.with_space(|space| space.take(bytes))).flatten();
        if let (Ok(region), Some(address)) = (region, address) {
            return Ok(Self { address, bytes, charged, region, device: Arc::clone(device) });
        }
        device.used.fetch_sub(charged, Ordering::Relaxed);
        Err(OutOfMemory)
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        self.device.with_space(|space| space.give_back(self.address, self.bytes));
        self.device.used.fetch_sub(self.charged, Ordering::Relaxed);
    }
}

/// The allocations of a session.
#[derive(Debug)]
pub(crate) struct Allocations {
    device: Arc<DeviceMemory>,
    by_address: BTreeMap<u64, Allocation>,
    charged: u64,
}

impl Allocations {
    pub(crate) const fn new(device: Arc<DeviceMemory>) -> Self {
        Self { device, by_address: BTreeMap::new(), charged: 0 }
    }

    /// Allocates `bytes`, not 0, and returns their address.
    pub(crate) fn allocate(&mut self, bytes: u64) -> Result<u64, OutOfMemory> {
        let allocation = Allocation::new(&self.device, bytes)?;
        let address = allocation.address;
        self.charged += allocation.charged;
        self.by_address.insert(address, allocation);
        Ok(address)
    }

    /// Frees the allocation that starts at `address`; false: there is none.
    pub(crate) fn free(&mut self, address: u64) -> bool {
        match self.by_address.remove(&address) {
            Some(allocation) => {
                self.charged -= allocation.charged;
                true
            }
            None => false,
        }
    }

    /// The memory at `address`, which may lie inside an allocation.
    pub(crate) fn slice(&self, address: u64, bytes: u64) -> Result<SharedSlice<'_>, Illegal> {
        let illegal = Illegal { address, bytes };
        let (start, allocation) = self.by_address.range(..=address).next_back().ok_or(illegal)?;
        let offset = address - start;
        if offset >= allocation.bytes || bytes > allocation.bytes - offset {
            return Err(illegal);
        }
        allocation.region.get_slice(offset as usize, bytes as usize).map_err(|_| illegal)
    }

    /// Bytes that the device counts for this session.
    pub(crate) const fn charged(&self) -> u64 {
        self.charged
    }

    pub(crate) fn count(&self) -> u32 {
        self.by_address.len() as u32
    }

    /// Free and total bytes of the device.
    pub(crate) fn info(&self) -> (u64, u64) {
        (self.device.total() - self.device.used(), self.device.total())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(total: u64) -> Arc<DeviceMemory> {
        Arc::new(DeviceMemory::new(total, 0x7000_0000_0000))
    }

    #[test]
    fn allocations_are_zero_separate_and_bounded() {
        let device = device(1 << 20);
        let mut one = Allocations::new(Arc::clone(&device));
        let mut two = Allocations::new(Arc::clone(&device));
        let a = one.allocate(1000).unwrap();
        let b = two.allocate(1000).unwrap();
        assert_eq!((a % 512, b % 512), (0, 0));
        assert_ne!(a, b);
        one.slice(a + 990, 10).unwrap().copy_from(&[7u8; 10]);
        let mut bytes = [1u8; 12];
        one.slice(a + 988, 12).unwrap().copy_to(&mut bytes);
        assert_eq!(bytes, [0, 0, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7]);
        for (address, bytes) in
            [(a + 991, 10), (a + 1000, 0), (a, 1001), (b, 1), (a - 1, 1), (a, u64::MAX), (0, 1)]
        {
            assert_eq!(one.slice(address, bytes).unwrap_err(), Illegal { address, bytes });
        }
    }

    #[test]
    fn the_account_is_the_devices_and_comes_back() {
        let device = device(1 << 20);
        let mut one = Allocations::new(Arc::clone(&device));
        let mut two = Allocations::new(Arc::clone(&device));
        let a = one.allocate(1 << 19).unwrap();
        two.allocate(1 << 18).unwrap();
        assert_eq!(two.allocate(1 << 19), Err(OutOfMemory));
        assert_eq!(two.allocate(u64::MAX), Err(OutOfMemory));
        assert_eq!(one.info(), (1 << 18, 1 << 20));
        assert!(one.free(a) && !one.free(a) && !one.free(a + 512));
        two.allocate(1 << 19).unwrap();
        assert_eq!((two.count(), two.charged()), (2, (1 << 18) + (1 << 19)));
        drop(two);
        assert_eq!(device.used(), 0);
    }

    #[test]
    fn freed_memory_is_not_seen_by_the_next_owner() {
        let device = device(1 << 20);
        let mut session = Allocations::new(device);
        let a = session.allocate(1 << 20).unwrap();
        session.slice(a, 1 << 20).unwrap().copy_from(&vec![0xabu8; 1 << 20]);
        session.free(a);
        let b = session.allocate(1 << 20).unwrap();
        let mut bytes = vec![1u8; 1 << 20];
        session.slice(b, 1 << 20).unwrap().copy_to(&mut bytes);
        assert!(bytes.iter().all(|&byte| byte == 0));
    }
}
