//! The address space of a session: areas for allocations and for reserved ranges, and the arena behind them.

use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use vgpu_arena::{Arena, LARGE_PAGE, OPENED_TOGETHER, PAGE};
use vgpu_device::{ADDRESS_SPAN, AddressSpace, Charge, Grain, OutOfMemory, Resource, Share};

/// Smallest address space of a session, in bytes.
const SPAN_LEAST: u64 = 256 << 30;
/// Bytes of address space for each byte of the device's memory. Addresses are reused last, and programs
/// reserve more than they map.
const SPAN_FACTOR: u64 = 16;
/// Bytes of memory for each byte of the page tables that the host's processor needs for it.
pub(super) const TABLE_SHARE: u64 = 512;

/// Addresses are aligned more than on real devices, because ranges are mapped in whole pages. A page behind
/// each range stays free.
const GRAIN: Grain = Grain { least: PAGE, gap: PAGE, large: 2 << 20 };

/// Bytes of a session's address space on a device with `memory` bytes.
fn span(memory: u64) -> u64 {
    let wanted = memory.saturating_mul(SPAN_FACTOR).max(SPAN_LEAST);
    wanted.checked_next_power_of_two().map_or(ADDRESS_SPAN, |span| span.min(ADDRESS_SPAN))
}

/// The addresses of the ranges that programs reserve, of a device with `memory` bytes whose addresses start
/// at `base`: a program can reserve all of it at once, so the gap behind the last range is left out.
pub(crate) fn reserved(base: u64, memory: u64) -> Range<u64> {
    let span = span(memory);
    base + span / 8 * 6..base + span - GRAIN.gap.next_multiple_of(GRAIN.large)
}

/// The addresses of a session and the arena behind them. Small allocations, large ones and reserved ranges
/// have areas of their own, so that the host needs few mappings and large pages hold large allocations alone.
#[derive(Debug)]
pub(crate) struct Region {
    pub(super) arena: Arena,
    small: Mutex<AddressSpace>,
    large: Mutex<AddressSpace>,
    reserved: Mutex<AddressSpace>,
    /// What the host's page tables are charged. They stay when memory is freed.
    tables: Mutex<Charge>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Region {
    /// Reserves the address space of a session; addresses start at `base`.
    pub(super) fn new(share: &Share, base: u64) -> Result<Self, OutOfMemory> {
        let span = span(share.device().total());
        let arena = Arena::new(base, span).map_err(|error| {
            let source = std::error::Error::source(&error);
            share.charges().log(0, || tracing::warn!("a session gets no device memory: {error}: {source:?}"));
            OutOfMemory
        })?;
        let eighth = span / 8;
        debug_assert!(eighth.is_multiple_of(OPENED_TOGETHER), "areas have pages of one kind");
        Ok(Self {
            arena,
            small: Mutex::new(AddressSpace::new(base, eighth, GRAIN)),
            large: Mutex::new(AddressSpace::new(base + eighth, 5 * eighth, GRAIN)),
            reserved: Mutex::new(AddressSpace::new(base + 6 * eighth, 2 * eighth, GRAIN)),
            tables: Mutex::new(share.charge(Resource::HostBytes, 0)?),
        })
    }

    /// Takes addresses for a range that the program reserves: at `hint` if they are free there, in the area
    /// of such ranges ([`reserved`]), and otherwise anywhere in it. `None`: it has no room.
    pub(super) fn reserve(&self, bytes: u64, alignment: u64, hint: u64) -> Option<u64> {
        let mut area = lock(&self.reserved);
        let wished = hint != 0 && hint.is_multiple_of(alignment);
        wished.then(|| area.take_at(hint, bytes)).flatten().or_else(|| area.take_aligned(bytes, alignment))
    }

    /// Gives back addresses that [`Region::reserve`] gave.
    pub(super) fn unreserve(&self, address: u64, bytes: u64) {
        lock(&self.reserved).give_back(address, bytes);
    }

    /// The area of allocations of this size.
    fn area(&self, bytes: u64) -> &Mutex<AddressSpace> {
        if bytes >= LARGE_PAGE { &self.large } else { &self.small }
    }

    /// Takes addresses for an allocation of `bytes`, which are whole pages.
    pub(super) fn take(&self, share: &Share, bytes: u64) -> Result<u64, OutOfMemory> {
        let address = lock(self.area(bytes)).take(bytes).ok_or(OutOfMemory)?;
        // Each page of tables maps so many bytes; half a page stands for the tables above them.
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

    /// Gives back addresses that [`Region::take`] gave.
    pub(super) fn give_back(&self, address: u64, bytes: u64) {
        lock(self.area(bytes)).give_back(address, bytes);
    }
}
