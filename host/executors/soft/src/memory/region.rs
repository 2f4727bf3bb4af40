//! The address space of a session: its addresses, and the arena behind them.

use std::sync::{Mutex, MutexGuard, PoisonError};

use vgpu_arena::Arena;
use vgpu_device::{Charge, NoAddresses, OutOfMemory, Quota, Resource};

use super::areas::{self, Areas};

/// Bytes of memory that one byte of the host's page tables maps.
pub(super) const TABLE_SHARE: u64 = 512;

/// The addresses of a session and the arena that holds their memory.
#[derive(Debug)]
pub(crate) struct Region {
    pub(super) arena: Arena,
    state: Mutex<RegionState>,
}

#[derive(Debug)]
struct RegionState {
    areas: Areas,
    /// The charge for the host's page tables, which stay when memory is freed.
    tables: Charge,
}

impl Region {
    /// Reserves the address space of a session; addresses start at `base`.
    pub(super) fn new(share: &Quota, base: u64) -> Result<Self, OutOfMemory> {
        let reserves = share.charges().limits().reservations > 0;
        let span = areas::span(share.pool().total(), reserves);
        let arena = Arena::new(base, span).map_err(|error| {
            let source = std::error::Error::source(&error);
            share.charges().log(0, || tracing::warn!("a session gets no device memory: {error}: {source:?}"));
            OutOfMemory
        })?;
        let tables = share.charge(Resource::HostBytes, 0)?;
        let state = Mutex::new(RegionState { areas: Areas::new(base, span, reserves), tables });
        Ok(Self { arena, state })
    }

    fn state(&self) -> MutexGuard<'_, RegionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves addresses: at `hint` if they are free there and in the area of reservations
    /// ([`areas::reservable`]), and otherwise anywhere in that area.
    pub(super) fn reserve(&self, bytes: u64, alignment: u64, hint: u64) -> Result<u64, NoAddresses> {
        self.state().areas.reserve(bytes, alignment, hint)
    }

    /// Frees addresses that [`Region::reserve`] returned.
    pub(super) fn unreserve(&self, address: u64, bytes: u64) {
        self.state().areas.unreserve(address, bytes);
    }

    /// Allocates addresses for `bytes`, which are whole pages, and charges the host's page tables to the
    /// session. Fails if addresses or the session's limit of host memory are used up.
    pub(super) fn allocate(&self, share: &Quota, bytes: u64) -> Result<u64, OutOfMemory> {
        let mut state = self.state();
        let address = state.areas.allocate(bytes).ok_or(OutOfMemory)?;
        // A page of the lowest tables maps 2 MiB. Charging twice its size covers the tables above it.
        let more = (state.areas.used() / TABLE_SHARE).saturating_sub(state.tables.amount());
        if let Err(over) = state.tables.grow(more) {
            state.areas.give_back(address, bytes);
            return Err(share.refuse(&over));
        }
        Ok(address)
    }

    /// Frees addresses that [`Region::allocate`] returned.
    pub(super) fn give_back(&self, address: u64, bytes: u64) {
        self.state().areas.give_back(address, bytes);
    }
}
