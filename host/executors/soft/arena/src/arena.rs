//! The arena: a range of device addresses and the mappings in it.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::mapped::{ArenaMapping, MappingTable, Pages, PagesError, Physical, Reservation, View};
use crate::page::{PAGE, whole_pages};

/// Reason for which a call on an arena failed.
#[derive(Debug, thiserror::Error)]
pub enum ArenaError {
    /// Base or span is not a multiple of the page size, the span is 0, or the range ends above 2^62.
    #[error("make an arena of {span:#x} bytes at device address {base:#x}: not whole pages below 2^62")]
    Span {
        /// The requested base.
        base: u64,
        /// The requested length in bytes.
        span: u64,
    },
    /// The system has no address space left for this process.
    #[error("reserve {span:#x} bytes of address space")]
    Reserve {
        /// Size of the address space in bytes.
        span: u64,
        /// The error of the system call.
        #[source]
        source: io::Error,
    },
    /// The range does not consist of whole pages within the arena, or is not free. An unmapped range is free
    /// once the last view that was made before is dropped.
    #[error("map {bytes:#x} bytes at device address {address:#x}: not free")]
    NotFree {
        /// First device address of the range.
        address: u64,
        /// Length of the range in bytes.
        bytes: u64,
    },
    /// The range does not consist of whole mappings, exceeds the physical memory, or has an offset in it that
    /// is not a multiple of the page size.
    #[error("change {bytes:#x} bytes at device address {address:#x}: not whole mappings")]
    NotMapped {
        /// First device address of the range.
        address: u64,
        /// Length of the range in bytes.
        bytes: u64,
    },
    /// The system refuses the memory.
    #[error("map {bytes:#x} bytes at device address {address:#x}")]
    Map {
        /// First device address of the range.
        address: u64,
        /// Length of the range in bytes.
        bytes: u64,
        /// The error of the system call.
        #[source]
        source: io::Error,
    },
}

/// The accesses that a mapping permits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessRights {
    /// The mapping cannot be accessed.
    #[default]
    None,
    /// The mapping can be read.
    Read,
    /// The mapping can be read and written.
    ReadWrite,
}

/// The device memory of a session: a reserved range of device addresses, with the mappings that [`View`]s
/// make accessible. Methods may be called by several threads at once.
#[derive(Debug)]
pub struct Arena {
    reservation: Arc<Reservation>,
    base: u64,
    state: Mutex<ArenaState>,
}

#[derive(Debug, Default)]
struct ArenaState {
    /// Mappings by device address.
    mappings: BTreeMap<u64, ArenaMapping>,
    /// The table of `mappings`, or `None` if they have changed since the last view was made.
    table: Option<Arc<MappingTable>>,
}

impl Arena {
    /// Makes an arena of `span` bytes that starts at device address `base`. An arena without mappings
    /// occupies no memory. Fails with [`ArenaError::Span`] or [`ArenaError::Reserve`].
    pub fn new(base: u64, span: u64) -> Result<Self, ArenaError> {
        let aligned = base.is_multiple_of(PAGE) && span.is_multiple_of(PAGE) && span > 0;
        // Offsets in windows must stay below 2^63, on which the checks of a warp's accesses rely.
        if !aligned || base.checked_add(span).is_none_or(|end| end > 1 << 62) {
            return Err(ArenaError::Span { base, span });
        }
        let reservation = Reservation::new(span).map_err(|source| ArenaError::Reserve { span, source })?;
        Ok(Self { reservation: Arc::new(reservation), base, state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, ArenaState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Maps zeroed memory at `address`, a multiple of [`PAGE`]. Exactly `bytes` of it can be accessed; the
    /// arena takes [`whole_pages`] of them. Fails with [`ArenaError::NotFree`], or with [`ArenaError::Map`]
    /// if the system refuses memory.
    pub fn map(&self, address: u64, bytes: u64) -> Result<(), ArenaError> {
        let whole = whole_pages(bytes).ok_or(ArenaError::NotFree { address, bytes })?;
        let pages = Pages::anonymous(&self.reservation, address.wrapping_sub(self.base), whole)
            .map_err(|error| map_error(error, address, bytes))?;
        let pages = Arc::new(pages);
        self.insert(address, ArenaMapping { pages, bytes, readable: true, writable: true, joins: false });
        Ok(())
    }

    /// Maps `bytes` of `physical` from `offset` on at `address`; all three are multiples of [`PAGE`].
    /// Adjacent mappings of physical memory with equal rights form one range. Fails with
    /// [`ArenaError::NotMapped`] if the bytes exceed `physical`, and otherwise as [`Arena::map`] does.
    pub fn map_shared(
        &self,
        address: u64,
        bytes: u64,
        physical: &Physical,
        offset: u64,
        access: AccessRights,
    ) -> Result<(), ArenaError> {
        if !offset.is_multiple_of(PAGE) || offset.checked_add(bytes).is_none_or(|end| end > physical.bytes())
        {
            return Err(ArenaError::NotMapped { address, bytes });
        }
        let at = address.wrapping_sub(self.base);
        let pages = Pages::shared(&self.reservation, at, bytes, physical, offset)
            .map_err(|error| map_error(error, address, bytes))?;
        let mut mapping =
            ArenaMapping { pages: Arc::new(pages), bytes, readable: false, writable: false, joins: true };
        grant(&mut mapping, access);
        self.insert(address, mapping);
        Ok(())
    }

    fn insert(&self, address: u64, mapping: ArenaMapping) {
        let mut state = self.state();
        state.table = None;
        state.mappings.insert(address, mapping);
    }

    /// Changes the rights of all mappings in a range. Existing views keep the old rights. Changes nothing and
    /// fails with [`ArenaError::NotMapped`] unless whole mappings fill the range without gaps.
    pub fn set_access(&self, address: u64, bytes: u64, access: AccessRights) -> Result<(), ArenaError> {
        let mut state = self.state();
        let keys = whole_mappings(&state.mappings, address, bytes)?;
        state.table = None;
        for key in keys {
            if let Some(mapping) = state.mappings.get_mut(&key) {
                grant(mapping, access);
            }
        }
        Ok(())
    }

    /// Removes all mappings in a range. Existing views keep the memory until they are dropped. Removes
    /// nothing and fails with [`ArenaError::NotMapped`] unless whole mappings fill the range without gaps.
    pub fn unmap(&self, address: u64, bytes: u64) -> Result<(), ArenaError> {
        let mut state = self.state();
        let keys = whole_mappings(&state.mappings, address, bytes)?;
        state.table = None;
        for key in keys {
            state.mappings.remove(&key);
        }
        Ok(())
    }

    /// Returns a snapshot of the current mappings. Later changes of the arena have no effect on it.
    #[must_use]
    pub fn view(&self) -> View {
        let mut state = self.state();
        let ArenaState { mappings, table } = &mut *state;
        let table = table.get_or_insert_with(|| {
            Arc::new(MappingTable::new(&self.reservation, self.base, mappings.values()))
        });
        View::new(Arc::clone(table))
    }
}

fn grant(mapping: &mut ArenaMapping, access: AccessRights) {
    mapping.readable = access != AccessRights::None;
    mapping.writable = access == AccessRights::ReadWrite;
}

fn map_error(error: PagesError, address: u64, bytes: u64) -> ArenaError {
    match error {
        PagesError::Taken => ArenaError::NotFree { address, bytes },
        PagesError::System(source) => ArenaError::Map { address, bytes, source },
    }
}

/// Returns the starts of the mappings that fill a range without gaps. Fails if the range is empty, has a gap,
/// or starts or ends within a mapping.
fn whole_mappings(
    mappings: &BTreeMap<u64, ArenaMapping>,
    address: u64,
    bytes: u64,
) -> Result<Vec<u64>, ArenaError> {
    let error = || ArenaError::NotMapped { address, bytes };
    let end = address.checked_add(bytes).filter(|_| bytes > 0).ok_or_else(error)?;
    let mut keys = Vec::new();
    let mut next = address;
    for (&start, mapping) in mappings.range(address..end) {
        if start != next {
            return Err(error());
        }
        keys.push(start);
        // All but the last of several mappings must fill their pages, or the next one starts behind a gap.
        next = start + mapping.bytes;
    }
    if next == end { Ok(keys) } else { Err(error()) }
}
