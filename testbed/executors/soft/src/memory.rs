//! A session's device memory: its arena, made when memory is first needed, and what is allocated in it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use vgpu_arena::{Arena, PAGE, View};
use vgpu_device::ADDRESS_SPAN;

use crate::account::{Charge, OutOfMemory, Share};
use crate::space::Space;
use crate::virtual_memory::Virtual;

/// Address space of a session at least: many times the memory, since addresses are used again last.
const SPAN_LEAST: u64 = 256 << 30;

/// Addresses and the arena behind them.
#[derive(Debug)]
pub(crate) struct Region {
    pub(crate) arena: Arena,
    space: Mutex<Space>,
}

impl Region {
    pub(crate) fn space(&self) -> MutexGuard<'_, Space> {
        self.space.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One allocation. Dropping it frees it: nothing that runs may refer to it any more.
#[derive(Debug)]
pub(crate) struct Allocation {
    address: u64,
    bytes: u64,
    region: Arc<Region>,
    _charge: Charge,
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if let Err(error) = self.region.arena.unmap(self.address, self.bytes) {
            tracing::error!("{error}");
        }
        self.region.space().give_back(self.address, self.bytes);
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
        let wanted = self.share.device().total().saturating_mul(4).max(SPAN_LEAST);
        let span = wanted.checked_next_power_of_two().map_or(ADDRESS_SPAN, |span| span.min(ADDRESS_SPAN));
        let arena = Arena::new(self.base, span).map_err(|error| {
            tracing::warn!(
                "a session gets no device memory: {error}: {:?}",
                std::error::Error::source(&error)
            );
            OutOfMemory
        })?;
        let space = Mutex::new(Space::new(self.base, span));
        Ok(Arc::clone(state.region.insert(Arc::new(Region { arena, space }))))
    }

    /// Allocates `bytes`, not 0, that read zeros, and does not enter them into the list: for what the program does not free.
    pub(crate) fn allocate_own(&self, bytes: u64) -> Result<Allocation, OutOfMemory> {
        let region = self.region(&mut self.state())?;
        let charge = self.share.charge(bytes.checked_next_multiple_of(PAGE).ok_or(OutOfMemory)?)?;
        let address = region.space().take(bytes).ok_or(OutOfMemory)?;
        if let Err(error) = region.arena.map(address, bytes) {
            tracing::warn!("{error}: {:?}", std::error::Error::source(&error));
            region.space().give_back(address, bytes);
            return Err(OutOfMemory);
        }
        Ok(Allocation { address, bytes, region, _charge: charge })
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
    use super::*;
    use crate::account::Account;

    fn memory(total: u64) -> Memory {
        Memory::new(Share::new(Arc::new(Account::new(total))), 0x7000_0000_0000)
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
