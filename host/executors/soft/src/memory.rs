//! A session's device memory: its allocations and mappings. The arena is made when memory is first needed.

mod areas;
mod region;
mod virtual_memory;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use vgpu_arena::{PAGE, View, whole_pages};
use vgpu_device::{Charge, OutOfMemory, PoolCharge, Quota, Resource};

use region::Region;
use virtual_memory::VirtualMemory;

pub(crate) use areas::reservable;
pub(crate) use virtual_memory::VirtualError;

/// An allocation of device memory. Dropping it frees the memory and its charges; no running work may refer to
/// it then.
#[derive(Debug)]
pub(crate) struct Allocation {
    address: u64,
    bytes: u64,
    region: Arc<Region>,
    _memory: PoolCharge,
    _rest: Charge,
    _count: Charge,
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if let Err(error) = self.region.arena.unmap(self.address, self.bytes) {
            tracing::error!("{error}");
        }
        // Addresses are returned in the size in which they were allocated.
        if let Some(whole) = whole_pages(self.bytes) {
            self.region.give_back(self.address, whole);
        }
    }
}

/// The device memory of a session.
#[derive(Debug)]
pub(crate) struct Memory {
    share: Arc<Quota>,
    base: u64,
    state: Mutex<MemoryState>,
}

#[derive(Debug, Default)]
struct MemoryState {
    region: Option<Arc<Region>>,
    allocations: BTreeMap<u64, Allocation>,
    /// The objects of `cuMemAddressReserve`, `cuMemCreate` and `cuMemMap`.
    virtual_memory: VirtualMemory,
}

impl Memory {
    /// Creates device memory without allocations. Addresses start at `base`.
    pub(crate) fn new(share: Quota, base: u64) -> Self {
        Self { share: Arc::new(share), base, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, MemoryState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn region(&self, state: &mut MemoryState) -> Result<Arc<Region>, OutOfMemory> {
        if let Some(region) = &state.region {
            return Ok(Arc::clone(region));
        }
        Ok(Arc::clone(state.region.insert(Arc::new(Region::new(&self.share, self.base)?))))
    }

    /// Returns what the session is charged for an allocation of `bytes` of device memory.
    pub(crate) const fn charge_of(bytes: u64) -> u64 {
        match bytes {
            0 => PAGE,
            bytes => bytes.saturating_add(PAGE - 1) / PAGE * PAGE,
        }
    }

    /// Allocates `bytes`, which must not be 0, filled with zeros. The allocation is not listed: the caller
    /// owns it, and the program cannot free it. Fails if the device, the session's limits or the host leave
    /// no room.
    pub(crate) fn allocate_own(&self, bytes: u64) -> Result<Allocation, OutOfMemory> {
        let region = self.region(&mut self.state())?;
        let count = self.share.charge(Resource::Allocations, 1)?;
        let whole = whole_pages(bytes).ok_or(OutOfMemory)?;
        // The rest of the last large page is charged as host memory.
        let counted = bytes.next_multiple_of(PAGE);
        let memory = self.share.allocate(counted)?;
        let rest = self.share.charge(Resource::HostBytes, whole - counted)?;
        let address = region.allocate(&self.share, whole)?;
        if let Err(error) = region.arena.map(address, bytes) {
            let source = std::error::Error::source(&error);
            self.share.charges().log(0, || tracing::warn!("{error}: {source:?}"));
            region.give_back(address, whole);
            return Err(OutOfMemory);
        }
        Ok(Allocation { address, bytes, region, _memory: memory, _rest: rest, _count: count })
    }

    /// Allocates `bytes`, which must not be 0, and returns their device address. The program frees them by
    /// that address ([`Memory::remove`]).
    pub(crate) fn allocate(&self, bytes: u64) -> Result<u64, OutOfMemory> {
        let allocation = self.allocate_own(bytes)?;
        let address = allocation.address;
        self.state().allocations.insert(address, allocation);
        Ok(address)
    }

    /// Charges the session for `bytes` of device memory that no allocation has.
    pub(crate) fn charge(&self, bytes: u64) -> Result<PoolCharge, OutOfMemory> {
        self.share.allocate(bytes)
    }

    /// Removes and returns the allocation that starts at `address`.
    pub(crate) fn remove(&self, address: u64) -> Option<Allocation> {
        self.state().allocations.remove(&address)
    }

    /// Returns a snapshot of the current mappings. Fails if the arena cannot be made.
    pub(crate) fn view(&self) -> Result<View, OutOfMemory> {
        Ok(self.region(&mut self.state())?.arena.view())
    }

    /// Calls `act` with the reservations, physical memory and mappings. Other calls on the memory wait
    /// meanwhile.
    pub(crate) fn with_virtual<T, E: From<OutOfMemory>>(
        &self,
        act: impl FnOnce(&mut VirtualMemory, &Arc<Region>, &Arc<Quota>) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut state = self.state();
        let region = self.region(&mut state)?;
        act(&mut state.virtual_memory, &region, &self.share)
    }

    /// Returns the number of bytes of device memory that are charged to the session.
    pub(crate) fn charged(&self) -> u64 {
        self.share.used()
    }

    /// Returns the number of allocations, pieces of physical memory included.
    pub(crate) fn count(&self) -> u32 {
        let state = self.state();
        (state.allocations.len() + state.virtual_memory.count()) as u32
    }

    /// Returns the free and total bytes of the device's memory, of which all sessions take.
    pub(crate) fn info(&self) -> (u64, u64) {
        let device = self.share.pool();
        (device.total() - device.used(), device.total())
    }
}

impl Allocation {
    /// Returns the device address of the first byte.
    pub(crate) const fn address(&self) -> u64 {
        self.address
    }
}

#[cfg(test)]
mod tests {
    use vgpu_device::{Limits, MemoryPool};

    use super::*;
    use crate::shares::{share, share_with};

    fn memory(total: u64) -> Memory {
        Memory::new(share(&Arc::new(MemoryPool::new(total))), 0x7000_0000_0000)
    }

    #[test]
    fn allocations_are_zero_and_bounded() {
        let memory = memory(1 << 20);
        let a = memory.allocate(1000).unwrap();
        let b = memory.allocate(4096).unwrap();
        assert_eq!((a % 512, b % 512), (0, 0));
        let view = memory.view().unwrap();
        view.writable(a + 990, 10).unwrap().copy_from(&[7u8; 10]);
        let mut bytes = [1u8; 12];
        view.readable(a + 988, 12).unwrap().copy_to(&mut bytes);
        assert_eq!(bytes, [0, 0, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7]);
        for (address, bytes) in
            [(a + 991, 10), (a, 1001), (b, 4097), (b + 4096, 1), (a - 1, 1), (a, u64::MAX), (0, 1)]
        {
            assert!(view.readable(address, bytes).is_err(), "{address:#x} {bytes}");
        }
    }

    #[test]
    fn what_is_freed_is_counted_free_and_gone() {
        let memory = memory(1 << 20);
        let a = memory.allocate(1 << 19).unwrap();
        assert_eq!(memory.allocate(1 << 20), Err(OutOfMemory));
        assert_eq!(memory.allocate(u64::MAX), Err(OutOfMemory));
        assert_eq!((memory.info(), memory.count()), ((1 << 19, 1 << 20), 1));
        let allocation = memory.remove(a).unwrap();
        assert!(memory.remove(a).is_none() && memory.remove(a + 512).is_none());
        assert_eq!(memory.charged(), 1 << 19);
        drop(allocation);
        assert_eq!((memory.charged(), memory.count()), (0, 0));
        assert!(memory.view().unwrap().readable(a, 1).is_err());
        memory.allocate(1 << 20).unwrap();
    }

    #[test]
    fn allocations_and_page_tables_are_charged() {
        let limits = Limits { allocations: 3, host_bytes: 8 << 10, ..Limits::default() };
        let device = Arc::new(MemoryPool::new(1 << 30));
        let memory = Memory::new(share_with(&device, limits), 0x7000_0000_0000);
        let charges = Arc::clone(memory.share.charges());
        let one: Vec<u64> = (0..3).map(|_| memory.allocate(1).unwrap()).collect();
        assert_eq!(memory.allocate(1), Err(OutOfMemory), "too many");
        memory.remove(one[0]);
        memory.allocate(1).unwrap();
        memory.remove(one[1]);
        // Page tables for 8 MiB exceed 8 KiB, because the memory may cross a boundary.
        assert_eq!(memory.allocate(8 << 20), Err(OutOfMemory));
        assert!(charges.used(Resource::HostBytes) <= 8 << 10);
        assert_eq!((memory.count(), memory.charged()), (2, 2 * 4096));
        drop(memory);
        assert_eq!((charges.bytes(), charges.used(Resource::Allocations), device.used()), (0, 0, 0));
    }

    /// All sessions share the process's 128 TiB of addresses.
    #[test]
    fn all_sessions_of_a_device_have_addresses_at_once() {
        let sessions: Vec<Memory> =
            (0..vgpu_wire::registers::MAX_CHANNELS).map(|_| memory(1 << 30)).collect();
        for memory in &sessions {
            let address = memory.allocate(4 << 20).unwrap();
            let view = memory.view().unwrap();
            view.writable(address + 5, 4).unwrap().copy_from(&[9u8; 4]);
        }
    }

    #[test]
    fn freed_memory_is_not_seen_by_the_next_owner() {
        let memory = memory(1 << 20);
        let a = memory.allocate(1 << 20).unwrap();
        memory.view().unwrap().writable(a, 1 << 20).unwrap().copy_from(&vec![0xabu8; 1 << 20]);
        memory.remove(a);
        let b = memory.allocate(1 << 20).unwrap();
        let mut bytes = vec![1u8; 1 << 20];
        memory.view().unwrap().readable(b, 1 << 20).unwrap().copy_to(&mut bytes);
        assert!(bytes.iter().all(|&byte| byte == 0));
    }
}
