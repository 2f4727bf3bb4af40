//! The address space of a session: its addresses, and the arena behind them.

use std::sync::{Mutex, MutexGuard, PoisonError};

use vgpu_arena::Arena;
use vgpu_device::{Charge, NoAddresses, OutOfMemory, Resource, Share};

use super::areas::{self, Areas};

/// Bytes of memory for each byte of the page tables that the host's processor needs for it.
pub(super) const TABLE_SHARE: u64 = 512;

/// The addresses of a session and the arena behind them.
#[derive(Debug)]
pub(crate) struct Region {
    pub(super) arena: Arena,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    areas: Areas,
    /// What the host's page tables are charged. They stay when memory is freed.
    tables: Charge,
}

impl Region {
    /// Reserves the address space of a session; addresses start at `base`.
    pub(super) fn new(share: &Share, base: u64) -> Result<Self, OutOfMemory> {
        let reserves = share.charges().limits().reservations > 0;
        let span = areas::span(share.device().total(), reserves);
        let arena = Arena::new(base, span).map_err(|error| {
            let source = std::error::Error::source(&error);
            share.charges().log(0, || tracing::warn!("a session gets no device memory: {error}: {source:?}"));
            OutOfMemory
        })?;
        let tables = share.charge(Resource::HostBytes, 0)?;
        let state = Mutex::new(State { areas: Areas::new(base, span, reserves), tables });
        Ok(Self { arena, state })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes addresses for a range that the program reserves: at `hint` if they are free there, in the area
    /// of such ranges ([`areas::reservable`]), and otherwise anywhere in it.
    pub(super) fn reserve(&self, bytes: u64, alignment: u64, hint: u64) -> Result<u64, NoAddresses> {
        self.state().areas.reserve(bytes, alignment, hint)
    }

    /// Gives back addresses that [`Region::reserve`] gave.
    pub(super) fn unreserve(&self, address: u64, bytes: u64) {
        self.state().areas.unreserve(address, bytes);
    }

    /// Takes addresses for an allocation of `bytes`, which are whole pages.
    pub(super) fn take(&self, share: &Share, bytes: u64) -> Result<u64, OutOfMemory> {
        let mut state = self.state();
        let address = state.areas.take(bytes).ok_or(OutOfMemory)?;
        // Each page of tables maps so many bytes; half a page stands for the tables above them.
        let more = (state.areas.used() / TABLE_SHARE).saturating_sub(state.tables.amount());
        if let Err(over) = state.tables.grow(more) {
            state.areas.give_back(address, bytes);
            return Err(share.over(&over));
        }
        Ok(address)
    }

    /// Gives back addresses that [`Region::take`] gave.
    pub(super) fn give_back(&self, address: u64, bytes: u64) {
        self.state().areas.give_back(address, bytes);
    }
}
