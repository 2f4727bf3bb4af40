//! A session's device memory: its arena, made when memory is first needed, and what is allocated in it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use vgpu_arena::{Arena, LARGE_PAGE, OPENED_TOGETHER, PAGE, View, whole_pages};
use vgpu_device::{ADDRESS_SPAN, Charge, Resource};

use crate::account::{OutOfMemory, Share, Taken};
use crate::space::Space;
use crate::virtual_memory::Virtual;

/// Address space of a session at least.
const SPAN_LEAST: u64 = 256 << 30;
/// Address space for each byte of the device's memory: addresses are used again last, and programs reserve more than they map.
const SPAN_FACTOR: u64 = 16;
/// Bytes of memory for each byte of the page tables that the host's processor needs for it.
pub(crate) const TABLE_SHARE: u64 = 512;

/// Addresses and the arena behind them. Small allocations, large ones and reserved ranges are apart: what is between two of a kind is
/// of that kind, so the host needs few mappings, and large pages hold large allocations alone.
#[derive(Debug)]
pub(crate) struct Region {
    pub(crate) arena: Arena,
    small: Mutex<Space>,
    large: Mutex<Space>,
    reserved: Mutex<Space>,
    /// What the host's page tables take: they stay when memory is freed.
    tables: Mutex<Charge>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Region {
    fn new(share: &Share, base: u64) -> Result<Self, OutOfMemory> {
        let wanted = share.device().total().saturating_mul(SPAN_FACTOR).max(SPAN_LEAST);
        let span = wanted.checked_next_power_of_two().map_or(ADDRESS_SPAN, |span| span.min(ADDRESS_SPAN));
        let arena = Arena::new(base, span).map_err(|error| {
            let source = std::error::Error::source(&error);
            share.charges().log(0, || tracing::warn!("a session gets no device memory: {error}: {source:?}"));
            OutOfMemory
        })?;
        let eighth = span / 8;
        debug_assert!(eighth.is_multiple_of(OPENED_TOGETHER), "areas have pages of one kind");
        Ok(Self {
            arena,
            small: Mutex::new(Space::new(base, eighth)),
            large: Mutex::new(Space::new(base + eighth, 5 * eighth)),
            reserved: Mutex::new(Space::new(base + 6 * eighth, 2 * eighth)),
            tables: Mutex::new(share.charge(Resource::HostBytes, 0)?),
        })
    }

    /// Where ranges are that programs reserve.
    pub(crate) fn reserved(&self) -> MutexGuard<'_, Space> {
        lock(&self.reserved)
    }

    fn area(&self, bytes: u64) -> &Mutex<Space> {
        if bytes >= LARGE_PAGE { &self.large } else { &self.small }
    }

    /// Addresses for an allocation. `bytes` is of whole pages.
    fn take(&self, share: &Share, bytes: u64) -> Result<u64, OutOfMemory> {
        let address = lock(self.area(bytes)).take(bytes).ok_or(OutOfMemory)?;
        // Each page of tables is for so many bytes; half a page stands for what is above them.
        let used = lock(&self.small).used() + lock(&self.large).used();
        let mut tables = lock(&self.tables);
        let more = (used / TABLE_SHARE).saturating_sub(tables.amount());
        if let Err(over) = tables.grow(more) {
            drop(tables);
            lock(self.area(bytes)).give_back(address, bytes);
            return Err(share.over(&over));
        }
        Ok(address)
    }

    fn give_back(&self, address: u64, bytes: u64) {
        lock(self.area(bytes)).give_back(address, bytes);
    }
}

/// One allocation. Dropping it frees it: nothing that runs may refer to it any more.
#[derive(Debug)]
pub(crate) struct Allocation {
    address: u64,
    bytes: u64,
    region: Arc<Region>,
    _memory: Taken,
    _rest: Charge,
    _count: Charge,
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if let Err(error) = self.region.arena.unmap(self.address, self.bytes) {
            tracing::error!("{error}");
        }
        // As it was taken.
        if let Some(whole) = whole_pages(self.bytes) {
            self.region.give_back(self.address, whole);
        }
    }
}

/// What a session's memory consists of.
#[derive(Debug)]
pub(crate) struct Memory {
    share: Arc<Share>,
    base: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    region: Option<Arc<Region>>,
    allocations: BTreeMap<u64, Allocation>,
    /// What `cuMemAddressReserve`, `cuMemCreate` and `cuMemMap` have made.
    virtual_memory: Virtual,
}

impl Memory {
    /// No memory yet; addresses begin at `base`.
    pub(crate) fn new(share: Share, base: u64) -> Self {
        Self { share: Arc::new(share), base, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn region(&self, state: &mut State) -> Result<Arc<Region>, OutOfMemory> {
        if let Some(region) = &state.region {
            return Ok(Arc::clone(region));
        }
        Ok(Arc::clone(state.region.insert(Arc::new(Region::new(&self.share, self.base)?))))
    }

    /// Allocates `bytes`, not 0, that read zeros, and does not enter them into the list: for what the program does not free.
    pub(crate) fn allocate_own(&self, bytes: u64) -> Result<Allocation, OutOfMemory> {
        let region = self.region(&mut self.state())?;
        let count = self.share.charge(Resource::Allocations, 1)?;
        let whole = whole_pages(bytes).ok_or(OutOfMemory)?;
        // What fills up the last large page is the host's affair.
        let counted = bytes.next_multiple_of(PAGE);
        let memory = self.share.take(counted)?;
        let rest = self.share.charge(Resource::HostBytes, whole - counted)?;
        let address = region.take(&self.share, whole)?;
        if let Err(error) = region.arena.map(address, bytes) {
            let source = std::error::Error::source(&error);
            self.share.charges().log(0, || tracing::warn!("{error}: {source:?}"));
            region.give_back(address, whole);
            return Err(OutOfMemory);
        }
        Ok(Allocation { address, bytes, region, _memory: memory, _rest: rest, _count: count })
    }

    /// Allocates `bytes`, not 0, and returns their address.
    pub(crate) fn allocate(&self, bytes: u64) -> Result<u64, OutOfMemory> {
        let allocation = self.allocate_own(bytes)?;
        let address = allocation.address;
        self.state().allocations.insert(address, allocation);
        Ok(address)
    }

    /// Takes the allocation that starts at `address` from the list: dropping it frees it.
    pub(crate) fn take(&self, address: u64) -> Option<Allocation> {
        self.state().allocations.remove(&address)
    }

    /// What is mapped now.
    pub(crate) fn view(&self) -> Result<View, OutOfMemory> {
        Ok(self.region(&mut self.state())?.arena.view())
    }

    /// Acts on reservations, physical memory and mappings.
    pub(crate) fn with_virtual<T, E: From<OutOfMemory>>(
        &self,
        act: impl FnOnce(&mut Virtual, &Arc<Region>, &Arc<Share>) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut state = self.state();
        let region = self.region(&mut state)?;
        act(&mut state.virtual_memory, &region, &self.share)
    }

    /// Bytes that the device counts for this session.
    pub(crate) fn charged(&self) -> u64 {
        self.share.used()
    }

    /// How many allocations there are, physical memory included.
    pub(crate) fn count(&self) -> u32 {
        let state = self.state();
        (state.allocations.len() + state.virtual_memory.count()) as u32
    }

    /// Free and total bytes of the device.
    pub(crate) fn info(&self) -> (u64, u64) {
        let device = self.share.device();
        (device.total() - device.used(), device.total())
    }
}

impl Allocation {
    pub(crate) const fn address(&self) -> u64 {
        self.address
    }
}

#[cfg(test)]
mod tests {
    use vgpu_device::Limits;

    use super::*;
    use crate::account::Account;
    use crate::account::tests::{share, share_with};

    fn memory(total: u64) -> Memory {
        Memory::new(share(&Arc::new(Account::new(total))), 0x7000_0000_0000)
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
        let allocation = memory.take(a).unwrap();
        assert!(memory.take(a).is_none() && memory.take(a + 512).is_none());
        assert_eq!(memory.charged(), 1 << 19);
        drop(allocation);
        assert_eq!((memory.charged(), memory.count()), (0, 0));
        assert!(memory.view().unwrap().readable(a, 1).is_err());
        memory.allocate(1 << 20).unwrap();
    }

    #[test]
    fn allocations_and_page_tables_are_charged() {
        let limits = Limits { allocations: 3, host_bytes: 8 << 10, ..Limits::default() };
        let device = Arc::new(Account::new(1 << 30));
        let memory = Memory::new(share_with(&device, limits), 0x7000_0000_0000);
        let charges = Arc::clone(memory.share.charges());
        let one: Vec<u64> = (0..3).map(|_| memory.allocate(1).unwrap()).collect();
        assert_eq!(memory.allocate(1), Err(OutOfMemory), "too many");
        memory.take(one[0]);
        memory.allocate(1).unwrap();
        memory.take(one[1]);
        // Tables for 8 MiB are more than 8 KiB, for they may lie across a boundary.
        assert_eq!(memory.allocate(8 << 20), Err(OutOfMemory));
        assert!(charges.used(Resource::HostBytes) <= 8 << 10);
        assert_eq!((memory.count(), memory.charged()), (2, 2 * 4096));
        drop(memory);
        assert_eq!((charges.bytes(), charges.used(Resource::Allocations), device.used()), (0, 0, 0));
    }

    #[test]
    fn freed_memory_is_not_seen_by_the_next_owner() {
        let memory = memory(1 << 20);
        let a = memory.allocate(1 << 20).unwrap();
        memory.view().unwrap().writable(a, 1 << 20).unwrap().copy_from(&vec![0xabu8; 1 << 20]);
        memory.take(a);
        let b = memory.allocate(1 << 20).unwrap();
        let mut bytes = vec![1u8; 1 << 20];
        memory.view().unwrap().readable(b, 1 << 20).unwrap().copy_to(&mut bytes);
        assert!(bytes.iter().all(|&byte| byte == 0));
    }
}
