//! Divides a session's device addresses among allocations and reservations.
//!
//! ```text
//! base             + 32 GiB                                       + 960 GiB      + 1 TiB
//!  | small allocations | reservations                         <- | large allocations |
//! ```
//!
//! GGML reserves 32 GiB of addresses for each context, however much memory the device has, so reservations
//! get most of the addresses. Small allocations, large ones and reservations are separate, so that the host
//! needs few mappings and large pages hold only large allocations. If large allocations fill their area, it
//! grows into the end of the area of reservations, so that all of them stay adjacent.

use std::ops::Range;

use vgpu_arena::{LARGE_PAGE, OPENED_TOGETHER, PAGE};
use vgpu_device::{ADDRESS_SPAN, AddressSpace, Granularity, NoAddresses};

/// Addresses are aligned more than on real devices, because ranges are mapped in whole pages. A page after
/// each range stays free.
const GRAIN: Granularity = Granularity { least: PAGE, gap: PAGE, large: LARGE_PAGE };

/// Bytes of the area of allocations smaller than a large page.
const SMALL: u64 = 32 << 30;
/// Bytes of the area of reservations: room for 24 contexts of GGML. On a device that stands in for a GPU
/// there is also room for 140 GiB of allocations, because all memory of a worker is in one reservation.
const RESERVED: u64 = 928 << 30;

/// Smallest number of addresses, in bytes, of a session without reservations.
const SPAN_LEAST: u64 = 256 << 30;
/// Addresses, in bytes, of a session without reservations for each byte of device memory. Freed addresses are
/// reused last.
const SPAN_FACTOR: u64 = 16;

const _: () = {
    assert!(SMALL + RESERVED < ADDRESS_SPAN && SMALL < SPAN_LEAST);
    // The host makes each of these pieces accessible with pages of one kind.
    assert!(SMALL.is_multiple_of(OPENED_TOGETHER) && RESERVED.is_multiple_of(OPENED_TOGETHER));
};

/// Returns the range in which a program can reserve addresses, on a device whose addresses start at `base`. A
/// program can reserve all of it at once, because the gap after the last reservation is excluded.
pub(crate) const fn reservable(base: u64) -> Range<u64> {
    base + SMALL..base + SMALL + RESERVED - LARGE_PAGE
}

/// Returns the number of addresses of a session on a device with `memory` bytes. A session that cannot
/// reserve needs fewer, and a process can have many: version 1 has one for each program of all machines.
pub(super) fn span(memory: u64, reserves: bool) -> u64 {
    if reserves {
        return ADDRESS_SPAN;
    }
    let wanted = memory.saturating_mul(SPAN_FACTOR).max(SPAN_LEAST);
    wanted.checked_next_power_of_two().map_or(ADDRESS_SPAN, |span| span.min(ADDRESS_SPAN))
}

/// The device addresses of a session, divided into areas.
#[derive(Debug)]
pub(super) struct Areas {
    small: AddressSpace,
    reserved: AddressSpace,
    large: AddressSpace,
    /// First address after the area of small allocations.
    small_end: u64,
}

impl Areas {
    /// Returns the `span` bytes from `base` on, all of them free.
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

    /// Allocates addresses for `bytes`, which are whole pages. Returns `None` if no range of addresses is
    /// long enough.
    pub(super) fn allocate(&mut self, bytes: u64) -> Option<u64> {
        let small = if bytes < LARGE_PAGE { self.small.allocate(bytes) } else { None };
        small.or_else(|| self.large.allocate(bytes)).or_else(|| {
            let more = bytes.checked_add(GRAIN.gap)?.checked_next_multiple_of(OPENED_TOGETHER)?;
            if !self.reserved.give_up_end(more) {
                return None;
            }
            self.large.extend_front(more);
            self.large.allocate(bytes)
        })
    }

    /// Frees addresses that [`Areas::allocate`] returned for this number of bytes.
    pub(super) fn give_back(&mut self, address: u64, bytes: u64) {
        let area = if address < self.small_end { &mut self.small } else { &mut self.large };
        area.free(address, bytes);
    }

    /// Returns the number of addresses, in bytes, that have ever been allocated.
    pub(super) const fn used(&self) -> u64 {
        self.small.used() + self.large.used()
    }

    /// Reserves addresses: at `hint` if they are free there, and anywhere otherwise.
    pub(super) fn reserve(&mut self, bytes: u64, alignment: u64, hint: u64) -> Result<u64, NoAddresses> {
        self.reserved.reserve(bytes, alignment, hint)
    }

    /// Frees addresses that [`Areas::reserve`] returned.
    pub(super) fn unreserve(&mut self, address: u64, bytes: u64) {
        self.reserved.free(address, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: u64 = 0x4000_0000_0000;
    const GIB: u64 = 1 << 30;
    /// Bytes that GGML reserves for each context.
    const POOL: u64 = 32 * GIB;
    const CONTEXTS: usize = 24;
    /// Sizes of device memory, up to the largest that a device can have.
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
            // Weights above 200 GiB leave room for fewer contexts.
            let weights = memory.min(200 * GIB);
            let mut taken = Vec::new();
            for turn in 0..CONTEXTS as u64 {
                let context = reserve(&mut areas, POOL).unwrap_or_else(|error| panic!("{memory}: {error}"));
                taken.push((context, POOL));
                let part = (weights / CONTEXTS as u64).next_multiple_of(LARGE_PAGE);
                let own = areas.allocate(part).unwrap_or_else(|| panic!("{memory}, {turn}"));
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
            // Reservations leave the area of allocations alone.
            assert!(areas.allocate(16 * GIB).is_some() && areas.allocate(PAGE).is_some());
        }
    }

    #[test]
    fn a_device_that_stands_in_for_a_gpu_reserves_all_at_once() {
        let part = reservable(BASE);
        let (mut areas, bytes) = (areas(GIB), part.end - part.start);
        assert_eq!(areas.reserve(bytes, LARGE_PAGE, part.start), Ok(part.start));
        // A worker has 24 contexts of its guest and the guest's allocations in this range.
        let grain = Granularity { least: LARGE_PAGE, gap: LARGE_PAGE, large: LARGE_PAGE };
        let mut within = AddressSpace::new(part.start, bytes, grain);
        assert!((0..14).all(|_| within.allocate(10 * GIB).is_some()));
        assert!((0..CONTEXTS).all(|_| within.reserve(POOL, LARGE_PAGE, 0).is_ok()));
    }

    #[test]
    fn large_allocations_stay_side_by_side() {
        let mut areas = areas(ADDRESS_SPAN / 2);
        let context = reserve(&mut areas, POOL).unwrap();
        let all: Vec<u64> = (0..50).map(|_| areas.allocate(10 * GIB).unwrap()).collect();
        let (first, last) = (all.iter().min().unwrap(), all.iter().max().unwrap());
        assert!(last - first < 51 * 11 * GIB && *first > context + POOL);
        assert!((500 * GIB..51 * 11 * GIB).contains(&areas.used()));
        for &address in &all {
            areas.give_back(address, 10 * GIB);
        }
        assert_eq!(areas.allocate(400 * GIB), Some(*first), "they are free again, as one range");
    }

    #[test]
    fn small_allocations_overflow_into_the_area_of_large_ones() {
        let mut areas = areas(ADDRESS_SPAN / 2);
        let bytes = LARGE_PAGE - PAGE;
        let small = SMALL / LARGE_PAGE;
        let all: Vec<u64> = (0..=small).map(|_| areas.allocate(bytes).unwrap()).collect();
        assert!(all[..all.len() - 1].iter().all(|&address| address < BASE + SMALL));
        let over = all[all.len() - 1];
        assert!(over >= BASE + SMALL + RESERVED);
        areas.give_back(over, bytes);
        areas.give_back(all[7], bytes);
        assert_eq!(areas.allocate(bytes), Some(all[7]));
    }

    #[test]
    fn a_session_that_cannot_reserve_has_its_addresses_for_allocations() {
        for memory in MEMORY {
            let span = span(memory, false);
            let mut areas = Areas::new(BASE, span, false);
            assert_eq!(reserve(&mut areas, LARGE_PAGE).map_err(|refused| refused.left), Err(0));
            let large = areas.allocate(memory).unwrap();
            assert!(large >= BASE + SMALL && large + memory <= BASE + span);
            assert!(span >= SPAN_LEAST && areas.allocate(span).is_none());
        }
    }
}
