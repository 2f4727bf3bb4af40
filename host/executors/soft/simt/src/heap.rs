//! The heap of kernels: device memory for `malloc` and `free`, which persists across launches.
//!
//! Two bit maps with a bit for each unit of 16 bytes record what is allocated. They are in host memory, so
//! that no kernel can overwrite them and their size does not depend on what kernels do.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Size of the smallest allocation in bytes, which is also the alignment.
const UNIT: u64 = 16;
/// Maximum size of a heap in bytes. Memory beyond it is not used.
const MOST: u64 = 1 << 32;

/// Device memory for the `malloc` of kernels. All launches of a session share one heap.
pub struct Heap {
    base: u64,
    units: usize,
    state: Mutex<HeapState>,
}

/// Two bit sets over the heap's units: `used` marks allocated units, `starts` marks the first unit of each
/// allocation.
struct HeapState {
    used: Vec<u64>,
    starts: Vec<u64>,
    /// Unit at which the next search starts (next fit).
    next: usize,
    allocations: u64,
}

impl fmt::Debug for Heap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Heap").field("base", &self.base).field("units", &self.units).finish_non_exhaustive()
    }
}

const fn bit(bits: &[u64], at: usize) -> bool {
    bits[at / 64] >> (at % 64) & 1 != 0
}

/// Returns the first unit in `from..end` whose bit is `wanted`, or `end` if there is none.
fn find(bits: &[u64], from: usize, end: usize, wanted: bool) -> usize {
    let mut at = from;
    while at < end {
        let word = if wanted { bits[at / 64] } else { !bits[at / 64] };
        let rest = word >> (at % 64);
        if rest != 0 {
            return end.min(at + rest.trailing_zeros() as usize);
        }
        at = (at / 64 + 1) * 64;
    }
    end
}

/// Sets or clears the bits `from..end`.
fn fill(bits: &mut [u64], from: usize, end: usize, set: bool) {
    let mut at = from;
    while at < end {
        let last = end.min((at / 64 + 1) * 64);
        let ones = u64::MAX >> (64 - (last - at)) << (at % 64);
        let word = &mut bits[at / 64];
        *word = if set { *word | ones } else { *word & !ones };
        at = last;
    }
}

impl Heap {
    /// Creates a heap without allocations in the `bytes` of device memory at `base`. Returns `None` if the
    /// host has no memory for the bit sets.
    #[must_use]
    pub fn new(base: u64, bytes: u64) -> Option<Self> {
        let units = usize::try_from(bytes.min(MOST) / UNIT).ok()?;
        let zeros = || {
            let mut bits: Vec<u64> = Vec::new();
            bits.try_reserve_exact(units.div_ceil(64)).ok()?;
            bits.resize(units.div_ceil(64), 0);
            Some(bits)
        };
        let state = HeapState { used: zeros()?, starts: zeros()?, next: 0, allocations: 0 };
        Some(Self { base, units, state: Mutex::new(state) })
    }

    /// Returns the host memory in bytes that the bit maps of a heap of `bytes` take.
    #[must_use]
    pub const fn cost(bytes: u64) -> u64 {
        bytes / UNIT / 4 + 64
    }

    fn state(&self) -> MutexGuard<'_, HeapState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of allocations that have not been freed.
    #[must_use]
    pub fn allocations(&self) -> u64 {
        self.state().allocations
    }

    /// Allocates `bytes` bytes, aligned to 16. Returns the device address, and the number of gaps that the
    /// search has examined. The address is 0 if `bytes` is 0 or no gap is large enough.
    pub(crate) fn allocate(&self, bytes: u64) -> (u64, u64) {
        let count = bytes.div_ceil(UNIT);
        let count = match usize::try_from(count) {
            Ok(count @ 1..) if count <= self.units => count,
            _ => return (0, 1),
        };
        let mut state = self.state();
        let start = state.next;
        let mut looks = 0;
        // The search goes from the end of the last allocation to the end of the heap, then from the start.
        for (from, end) in [(start, self.units), (0, self.units.min(start.saturating_add(count)))] {
            let mut at = from;
            while at < end {
                looks += 1;
                let free = find(&state.used, at, end, false);
                let full = find(&state.used, free, end.min(free.saturating_add(count)), true);
                if full - free >= count {
                    state.mark_used(free, count);
                    return (self.base + free as u64 * UNIT, looks);
                }
                at = full.max(free + 1);
            }
        }
        (0, looks)
    }

    /// Frees the allocation that starts at an address. Returns false if no allocation does.
    pub(crate) fn free(&self, address: u64) -> bool {
        let Some(offset) = address.checked_sub(self.base).filter(|offset| offset.is_multiple_of(UNIT)) else {
            return false;
        };
        let Some(unit) = usize::try_from(offset / UNIT).ok().filter(|&unit| unit < self.units) else {
            return false;
        };
        let mut state = self.state();
        if !bit(&state.starts, unit) {
            return false;
        }
        let next = find(&state.starts, unit + 1, self.units, true);
        let end = find(&state.used, unit, next, false);
        state.mark_free(unit, end);
        true
    }
}

impl HeapState {
    fn mark_used(&mut self, from: usize, count: usize) {
        fill(&mut self.used, from, from + count, true);
        self.starts[from / 64] |= 1 << (from % 64);
        self.next = from + count;
        self.allocations += 1;
    }

    fn mark_free(&mut self, from: usize, end: usize) {
        fill(&mut self.used, from, end, false);
        self.starts[from / 64] &= !(1 << (from % 64));
        self.allocations -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: u64 = 0x7000_0000_0000;

    #[test]
    fn what_does_not_fit_is_refused() {
        let heap = Heap::new(BASE, 1 << 12).unwrap();
        assert_eq!(heap.allocate(0).0, 0);
        assert_eq!(heap.allocate(u64::MAX).0, 0);
        assert_eq!(heap.allocate((1 << 12) + 1).0, 0);
        assert_eq!(heap.allocate(1 << 12).0, BASE);
        assert_eq!(heap.allocate(1).0, 0);
        for wrong in [0, 1, BASE - 16, BASE + 1, BASE + 16, BASE + (1 << 12), u64::MAX] {
            assert!(!heap.free(wrong), "{wrong:#x}");
        }
        assert!(heap.free(BASE) && !heap.free(BASE));
        assert_eq!((heap.allocate(16).0, heap.allocations()), (BASE, 1));
    }

    /// Compares the heap with a list of allocations: allocations never overlap, and every gap can be
    /// allocated.
    #[test]
    fn pieces_are_apart() {
        const BYTES: u64 = 1 << 12;
        let mut state = 1u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for _ in 0..200 {
            let heap = Heap::new(BASE, BYTES).unwrap();
            let mut pieces: Vec<(u64, u64)> = Vec::new();
            for _ in 0..300 {
                if random(5) < 3 || pieces.is_empty() {
                    let bytes = 1 + random(700);
                    let size = bytes.next_multiple_of(UNIT);
                    let (address, _) = heap.allocate(bytes);
                    pieces.sort_unstable();
                    let (mut last, mut gaps) = (BASE, Vec::new());
                    for &(start, size) in pieces.iter().chain([&(BASE + BYTES, 0)]) {
                        gaps.push((last, start));
                        last = start + size;
                    }
                    if address == 0 {
                        assert!(
                            gaps.iter().all(|(from, to)| to - from < size),
                            "{gaps:?} have room for {size}"
                        );
                    } else {
                        let fits = gaps.iter().any(|&(from, to)| from <= address && address + size <= to);
                        assert!(fits, "{address:#x} of {size} in {gaps:?}");
                        pieces.push((address, size));
                    }
                } else {
                    let (address, _) = pieces.swap_remove(random(pieces.len() as u64) as usize);
                    assert!(heap.free(address));
                }
                assert_eq!(heap.allocations(), pieces.len() as u64);
            }
        }
    }
}
