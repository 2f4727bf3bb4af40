//! How a session's device addresses are shared out among allocations and reservations.
//!
//! ```text
//! base             + 32 GiB                                       + 960 GiB      + 1 TiB
//!  | small allocations | reservations                         <- | large allocations |
//! ```
//!
//! GGML reserves 32 GiB of addresses for each context, whatever the device's memory is, so reservations get
//! most of the session's addresses. Small allocations, large ones and reservations lie apart, so that the
//! host needs few mappings and large pages hold large allocations alone. Large allocations that their area
//! has no room for take the end of the area of reservations into it: all of them stay side by side.

use std::ops::Range;

use vgpu_arena::{LARGE_PAGE, OPENED_TOGETHER, PAGE};
use vgpu_device::{ADDRESS_SPAN, AddressSpace, Grain, NoAddresses};

/// Addresses are aligned more than on real devices, because ranges are mapped in whole pages. A page behind
/// each range stays free.
const GRAIN: Grain = Grain { least: PAGE, gap: PAGE, large: LARGE_PAGE };

/// Bytes of the area of allocations smaller than a large page.
const SMALL: u64 = 32 << 30;
/// Bytes of the area of reservations: room for 24 contexts of GGML, and on a device that stands in for a GPU
/// for 140 GiB of allocations beside them, since all that a worker has lies in one reservation.
const RESERVED: u64 = 928 << 30;

/// Bytes of addresses that a session without reservations has at least.
const SPAN_LEAST: u64 = 256 << 30;
/// Bytes of addresses that a session without reservations has for each byte of the device's memory. Addresses
/// are reused last.
const SPAN_FACTOR: u64 = 16;

const _: () = {
    assert!(SMALL + RESERVED < ADDRESS_SPAN && SMALL < SPAN_LEAST);
    // Each of these pieces has pages of one kind.
    assert!(SMALL.is_multiple_of(OPENED_TOGETHER) && RESERVED.is_multiple_of(OPENED_TOGETHER));
};

/// The addresses at which a program can reserve, of a device whose addresses start at `base`. A program can
/// reserve all of it at once, so the gap behind the last reservation is left out.
pub(crate) const fn reservable(base: u64) -> Range<u64> {
    base + SMALL..base + SMALL + RESERVED - LARGE_PAGE
}

/// Bytes of a session's addresses on a device with `memory` bytes. A session that cannot reserve needs fewer,
/// and a process can have many of them: over version 1 there is one for each program of all machines.
pub(super) fn span(memory: u64, reserves: bool) -> u64 {
    if reserves {
        return ADDRESS_SPAN;
    }
    let wanted = memory.saturating_mul(SPAN_FACTOR).max(SPAN_LEAST);
    wanted.checked_next_power_of_two().map_or(ADDRESS_SPAN, |span| span.min(ADDRESS_SPAN))
}

/// The addresses of a session.
#[derive(Debug)]
pub(super) struct Areas {
    small: AddressSpace,
    reserved: AddressSpace,
    large: AddressSpace,
    /// The first address behind the area of small allocations.
    small_end: u64,
}

impl Areas {
    /// The `span` bytes from `base` on, all of them free.
    pub(super) fn new(base: u64, span: u64, reserves: bool) -> Self {
        let reserved = if reserves { RESERVED } else { 0 };
        let small_end = base + SMALL;
        Self {
            small: AddressSpace::new(base, SMALL, GRAIN),
            reserved: AddressSpace::new(small_end, reserved, GRAIN),
            large: AddressSpace::new(small_end + reserved, span - SMALL - reserved, GRAIN),
            small_end,
        }
    }

    /// Takes addresses for an allocation of `bytes`, which are whole pages.
    pub(super) fn take(&mut self, bytes: u64) -> Option<u64> {
        let small = if bytes < LARGE_PAGE { self.small.take(bytes) } else { None };
        small.or_else(|| self.large.take(bytes)).or_else(|| {
            let more = bytes.checked_add(GRAIN.gap)?.checked_next_multiple_of(OPENED_TOGETHER)?;
            if !self.reserved.give_up_end(more) {
                return None;
            }
            self.large.extend_front(more);
            self.large.take(bytes)
        })
    }

    /// Gives back addresses that [`Areas::take`] gave for an allocation of so many bytes.
    pub(super) fn give_back(&mut self, address: u64, bytes: u64) {
        let area = if address < self.small_end { &mut self.small } else { &mut self.large };
        area.give_back(address, bytes);
    }

    /// Bytes of addresses at which there ever was an allocation.
    pub(super) const fn used(&self) -> u64 {
        self.small.used() + self.large.used()
    }

    /// Takes addresses for a reservation: at `hint` if they are free there, and anywhere otherwise.
    pub(super) fn reserve(&mut self, bytes: u64, alignment: u64, hint: u64) -> Result<u64, NoAddresses> {
        self.reserved.reserve(bytes, alignment, hint)
    }

    /// Gives back addresses that [`Areas::reserve`] gave.
    pub(super) fn unreserve(&mut self, address: u64, bytes: u64) {
        self.reserved.give_back(address, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: u64 = 0x4000_0000_0000;
    const GIB: u64 = 1 << 30;
    /// What GGML reserves for each context.
    const POOL: u64 = 32 * GIB;
    const CONTEXTS: usize = 24;
    /// Memory of devices, from little to the most that a device can have.
    const MEMORY: [u64; 7] = [GIB / 4, GIB, 8 * GIB, 80 * GIB, 140 * GIB, 200 * GIB, ADDRESS_SPAN / 2];

    fn areas(memory: u64) -> Areas {
        Areas::new(BASE, span(memory, true), true)
    }

    fn reserve(areas: &mut Areas, bytes: u64) -> Result<u64, NoAddresses> {
        areas.reserve(bytes, LARGE_PAGE, 0)
    }

    #[test]
    fn two_dozen_contexts_fit_beside_all_the_memory_of_a_device() {
        for memory in MEMORY {
            let mut areas = areas(memory);
            // More than 200 GiB of weights leave room for fewer.
            let weights = memory.min(200 * GIB);
            let mut taken = Vec::new();
            for turn in 0..CONTEXTS as u64 {
                let context = reserve(&mut areas, POOL).unwrap_or_else(|error| panic!("{memory}: {error}"));
                taken.push((context, POOL));
                let part = (weights / CONTEXTS as u64).next_multiple_of(LARGE_PAGE);
                let own = areas.take(part).unwrap_or_else(|| panic!("{memory}, {turn}"));
                taken.push((own, part));
            }
            taken.sort_unstable();
            assert!(taken.windows(2).all(|two| two[0].0 + two[0].1 < two[1].0), "{taken:x?}");
            let (last, bytes) = taken[taken.len() - 1];
            assert!(taken[0].0 >= BASE && last + bytes <= BASE + span(memory, true));
        }
    }

    #[test]
    fn contexts_come_and_go_and_reservations_end() {
        for memory in MEMORY {
            let mut areas = areas(memory);
            for _ in 0..5 {
                let contexts: Vec<u64> =
                    (0..CONTEXTS).map(|_| reserve(&mut areas, POOL).expect("addresses")).collect();
                for address in contexts {
                    areas.unreserve(address, POOL);
                }
            }
            let mut contexts = Vec::new();
            let refused = loop {
                match reserve(&mut areas, POOL) {
                    Ok(address) => contexts.push(address),
                    Err(refused) => break refused,
                }
            };
            assert!((CONTEXTS..ADDRESS_SPAN as usize / POOL as usize).contains(&contexts.len()));
            assert!(refused.bytes == POOL && refused.longest < POOL && refused.left >= refused.longest);
            // Allocations have their area, whatever is reserved.
            assert!(areas.take(16 * GIB).is_some() && areas.take(PAGE).is_some());
        }
    }

    #[test]
    fn a_device_that_stands_in_for_a_gpu_reserves_all_at_once() {
        let part = reservable(BASE);
        let (mut areas, bytes) = (areas(GIB), part.end - part.start);
        assert_eq!(areas.reserve(bytes, LARGE_PAGE, part.start), Ok(part.start));
        // What a worker has within it: 24 contexts of its guest, and its guest's allocations.
        let grain = Grain { least: LARGE_PAGE, gap: LARGE_PAGE, large: LARGE_PAGE };
        let mut within = AddressSpace::new(part.start, bytes, grain);
        assert!((0..14).all(|_| within.take(10 * GIB).is_some()));
        assert!((0..CONTEXTS).all(|_| within.reserve(POOL, LARGE_PAGE, 0).is_ok()));
    }

    #[test]
    fn large_allocations_stay_side_by_side() {
        let mut areas = areas(ADDRESS_SPAN / 2);
        let context = reserve(&mut areas, POOL).unwrap();
        let all: Vec<u64> = (0..50).map(|_| areas.take(10 * GIB).unwrap()).collect();
        let (first, last) = (all.iter().min().unwrap(), all.iter().max().unwrap());
        assert!(last - first < 51 * 11 * GIB && *first > context + POOL);
        assert!((500 * GIB..51 * 11 * GIB).contains(&areas.used()));
        for &address in &all {
            areas.give_back(address, 10 * GIB);
        }
        assert_eq!(areas.take(400 * GIB), Some(*first), "they are free again, as one range");
    }

    #[test]
    fn small_allocations_overflow_into_the_area_of_large_ones() {
        let mut areas = areas(ADDRESS_SPAN / 2);
        let bytes = LARGE_PAGE - PAGE;
        let small = SMALL / LARGE_PAGE;
        let all: Vec<u64> = (0..=small).map(|_| areas.take(bytes).unwrap()).collect();
        assert!(all[..all.len() - 1].iter().all(|&address| address < BASE + SMALL));
        let over = all[all.len() - 1];
        assert!(over >= BASE + SMALL + RESERVED);
        areas.give_back(over, bytes);
        areas.give_back(all[7], bytes);
        assert_eq!(areas.take(bytes), Some(all[7]));
    }

    #[test]
    fn a_session_that_cannot_reserve_has_its_addresses_for_allocations() {
        for memory in MEMORY {
            let span = span(memory, false);
            let mut areas = Areas::new(BASE, span, false);
            assert_eq!(reserve(&mut areas, LARGE_PAGE).map_err(|refused| refused.left), Err(0));
            let large = areas.take(memory).unwrap();
            assert!(large >= BASE + SMALL && large + memory <= BASE + span);
            assert!(span >= SPAN_LEAST && areas.take(span).is_none());
        }
    }
}
