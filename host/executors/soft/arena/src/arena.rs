//! The arena: which addresses are mapped, to what.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::mapped::{Mapping, Pages, PagesError, Physical, Reservation, Table, View};
use crate::page::{PAGE, whole_pages};

/// Why an arena cannot do what it is asked for.
#[derive(Debug, thiserror::Error)]
pub enum ArenaError {
    /// Base or span are no multiples of the page size, or go beyond the end of addresses.
    #[error("make an arena of {span:#x} bytes at device address {base:#x}: there is none")]
    Span {
        /// Where it was to begin.
        base: u64,
        /// How long it was to be.
        span: u64,
    },
    /// The system has no address space left for this process.
    #[error("reserve {span:#x} bytes of address space")]
    Reserve {
        /// Size of the address space in bytes.
        span: u64,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The range is not in whole pages from a page's start, not within the arena, or not free. What was
    /// unmapped is free when no view from before is left.
    #[error("map {bytes:#x} bytes at device address {address:#x}: not free")]
    NotFree {
        /// First device address of the range.
        address: u64,
        /// Length of the range in bytes.
        bytes: u64,
    },
    /// The range is not of whole mappings, or goes beyond the physical memory.
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
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

/// What may be done with a mapping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// The mapping cannot be accessed.
    #[default]
    None,
    /// The mapping can be read.
    Read,
    /// Reading and writing.
    ReadWrite,
}

/// The device memory of a session: see the crate's description.
#[derive(Debug)]
pub struct Arena {
    reservation: Arc<Reservation>,
    base: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Mappings by device address.
    mappings: BTreeMap<u64, Mapping>,
    /// The table of these mappings, once a view has been asked for.
    table: Option<Arc<Table>>,
}

impl Arena {
    /// An arena of `span` bytes that begins at device address `base`. Neither costs memory.
    pub fn new(base: u64, span: u64) -> Result<Self, ArenaError> {
        let aligned = base.is_multiple_of(PAGE) && span.is_multiple_of(PAGE) && span > 0;
        // Offsets in windows stay below 2^63: the checks of warps' accesses rest on it.
        if !aligned || base.checked_add(span).is_none_or(|end| end > 1 << 62) {
            return Err(ArenaError::Span { base, span });
        }
        let reservation = Reservation::new(span).map_err(|source| ArenaError::Reserve { span, source })?;
        Ok(Self { reservation: Arc::new(reservation), base, state: Mutex::default() })
    }

    /// Device address of its first byte.
    #[must_use]
    pub const fn base(&self) -> u64 {
        self.base
    }

    /// Its length in bytes.
    #[must_use]
    pub fn span(&self) -> u64 {
        self.reservation.bytes()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts zeroed memory at `address`, a multiple of [`PAGE`]. Exactly `bytes` of it can be accessed.
    pub fn map(&self, address: u64, bytes: u64) -> Result<(), ArenaError> {
        let whole = whole_pages(bytes).ok_or(ArenaError::NotFree { address, bytes })?;
        let pages = Pages::anonymous(&self.reservation, address.wrapping_sub(self.base), whole)
            .map_err(|error| map_error(error, address, bytes))?;
        let pages = Arc::new(pages);
        self.insert(address, Mapping { pages, bytes, readable: true, writable: true, joins: false });
        Ok(())
    }

    /// Puts `bytes` of `physical` from `offset` on at `address`; all three are multiples of [`PAGE`].
    /// Neighbouring mappings of physical memory with equal rights make one range.
    pub fn map_shared(
        &self,
        address: u64,
        bytes: u64,
        physical: &Physical,
        offset: u64,
        access: Access,
    ) -> Result<(), ArenaError> {
        if !offset.is_multiple_of(PAGE) || offset.checked_add(bytes).is_none_or(|end| end > physical.bytes())
        {
            return Err(ArenaError::NotMapped { address, bytes });
        }
        let at = address.wrapping_sub(self.base);
        let pages = Pages::shared(&self.reservation, at, bytes, physical, offset)
            .map_err(|error| map_error(error, address, bytes))?;
        let mut mapping =
            Mapping { pages: Arc::new(pages), bytes, readable: false, writable: false, joins: true };
        grant(&mut mapping, access);
        self.insert(address, mapping);
        Ok(())
    }

    fn insert(&self, address: u64, mapping: Mapping) {
        let mut state = self.state();
        state.table = None;
        state.mappings.insert(address, mapping);
    }

    /// Changes what may be done with all mappings of a range. Views that exist keep the old rights.
    pub fn set_access(&self, address: u64, bytes: u64, access: Access) -> Result<(), ArenaError> {
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

    /// Takes all mappings of a range away. Views that exist keep the memory until they are dropped.
    pub fn unmap(&self, address: u64, bytes: u64) -> Result<(), ArenaError> {
        let mut state = self.state();
        let keys = whole_mappings(&state.mappings, address, bytes)?;
        state.table = None;
        for key in keys {
            state.mappings.remove(&key);
        }
        Ok(())
    }

    /// What is mapped now.
    #[must_use]
    pub fn view(&self) -> View {
        let mut state = self.state();
        let State { mappings, table } = &mut *state;
        let table = table
            .get_or_insert_with(|| Arc::new(Table::new(&self.reservation, self.base, mappings.values())));
        View::new(Arc::clone(table))
    }
}

fn grant(mapping: &mut Mapping, access: Access) {
    mapping.readable = access != Access::None;
    mapping.writable = access == Access::ReadWrite;
}

fn map_error(error: PagesError, address: u64, bytes: u64) -> ArenaError {
    match error {
        PagesError::Taken => ArenaError::NotFree { address, bytes },
        PagesError::System(source) => ArenaError::Map { address, bytes, source },
    }
}

/// The starts of the mappings that fill a range without gaps.
fn whole_mappings(
    mappings: &BTreeMap<u64, Mapping>,
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
        // Of several mappings, all but the last fill their pages.
        next = start + mapping.bytes;
    }
    if next == end { Ok(keys) } else { Err(error()) }
}
