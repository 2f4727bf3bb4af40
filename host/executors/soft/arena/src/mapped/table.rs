//! The immutable, sorted table of an arena's mappings, exact to the byte.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::reservation::{Pages, Reservation};

/// A mapping of an arena: pages, and how they may be accessed.
#[derive(Clone, Debug)]
pub(crate) struct ArenaMapping {
    pub(crate) pages: Arc<Pages>,
    /// Number of bytes that may be accessed from the start of the pages. It is at most their length.
    pub(crate) bytes: u64,
    /// Whether the mapping may be read. If not, it may not be written either.
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    /// Whether an access may continue from this mapping into the adjacent one, as it may between mappings of
    /// physical memory.
    pub(crate) joins: bool,
}

/// A range of device addresses that is mapped without gaps and with the same rights everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) writable: bool,
}

/// A snapshot of an arena's mappings, which keeps the pages of all of them alive.
#[derive(Debug)]
pub(crate) struct MappingTable {
    /// Number of the table, which no other table of this process has, and which is not 0.
    pub(super) number: u64,
    pub(super) reservation: Arc<Reservation>,
    /// Device address of the reservation's first byte.
    pub(super) base: u64,
    pub(super) extents: Box<[Extent]>,
    _pages: Box<[Arc<Pages>]>,
}

impl MappingTable {
    /// Makes the table of `mappings`, which are sorted by address and all in `reservation`. Panics if they
    /// are not.
    pub(crate) fn new<'a>(
        reservation: &Arc<Reservation>,
        base: u64,
        mappings: impl Iterator<Item = &'a ArenaMapping>,
    ) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(1);
        let mut extents: Vec<Extent> = Vec::new();
        let mut pages = Vec::new();
        let mut joins = false;
        for mapping in mappings {
            assert!(Arc::ptr_eq(mapping.pages.reservation(), reservation), "pages are the arena's own");
            pages.push(Arc::clone(&mapping.pages));
            if !mapping.readable {
                joins = false;
                continue;
            }
            let start = base + mapping.pages.offset();
            let end = start + mapping.bytes.min(mapping.pages.bytes());
            let writable = mapping.writable;
            match extents.last_mut() {
                Some(last) if joins && mapping.joins && last.end == start && last.writable == writable => {
                    last.end = end;
                }
                last => {
                    assert!(last.is_none_or(|last| last.end <= start), "mappings come in order");
                    extents.push(Extent { start, end, writable });
                }
            }
            joins = mapping.joins;
        }
        Self {
            number: NUMBER.fetch_add(1, Ordering::Relaxed),
            reservation: Arc::clone(reservation),
            base,
            extents: extents.into(),
            _pages: pages.into(),
        }
    }

    /// Returns the extent that contains `address`, or `None` if the address is not mapped.
    pub(super) fn find(&self, address: u64) -> Option<&Extent> {
        let after = self.extents.partition_point(|extent| extent.start <= address);
        self.extents[..after].last().filter(|extent| address < extent.end)
    }
}
