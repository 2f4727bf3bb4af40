//! Accesses of a warp: 32 lanes with an address each. All of them are checked before any is executed.
//!
//! These functions are the inner loop of every kernel, so they are inlined into their callers and use the
//! callers' instruction set.

use zerocopy::IntoBytes;

use super::element::sealed::{Raw, RawCell};
use super::element::{Cell, Element};
use super::lanes::{LANES, any_bad_avx2, bad_avx2, bad_plain, unit_avx2, unit_plain};
use super::view::{View, Window};
use crate::fault::{Fault, FaultKind};

/// Pattern of the addresses of a valid access.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AddressPattern {
    /// All lanes are active, and their elements are adjacent in the order of the lanes.
    Unit,
    /// The addresses have no pattern that makes the access cheaper.
    Any,
}

/// Calls `each` for every lane of a mask, in order.
#[inline(always)]
pub fn for_active(mask: u32, mut each: impl FnMut(usize)) {
    if mask == u32::MAX {
        for lane in 0..LANES {
            each(lane);
        }
        return;
    }
    let mut rest = mask;
    while rest != 0 {
        each(rest.trailing_zeros() as usize);
        rest &= rest - 1;
    }
}

impl View {
    /// Checks that each active lane may access `bytes`, a power of two, at its address, and finds the pattern
    /// of the addresses. Fails with the fault of the lowest lane that may not.
    #[inline(always)]
    fn check(
        &self,
        window: &mut Window,
        addresses: &[u64; LANES],
        mask: u32,
        bytes: u64,
        write: bool,
    ) -> Result<AddressPattern, Fault> {
        let room = if write { window.writable } else { window.bytes };
        if self.knows(window) && room >= bytes {
            // Comparing two lanes rules out most accesses that are not adjacent.
            let maybe = mask == u32::MAX && addresses[1].wrapping_sub(addresses[0]) == bytes;
            if maybe && self.unit(addresses, bytes) {
                let first = addresses[0];
                if window.holds(first, bytes * LANES as u64, write) && first.is_multiple_of(bytes) {
                    return Ok(AddressPattern::Unit);
                }
            } else {
                let (start, last) = (window.start, room - bytes);
                let good = if mask == u32::MAX {
                    !self.any_bad(addresses, start, last, bytes)
                } else {
                    self.bad(addresses, start, last, bytes) & mask == 0
                };
                if good {
                    return Ok(AddressPattern::Any);
                }
            }
        }
        self.check_each(window, addresses, mask, bytes, write).map(|()| AddressPattern::Any)
    }

    #[inline(always)]
    fn unit(&self, addresses: &[u64; LANES], bytes: u64) -> bool {
        if self.avx2 {
            // SAFETY: the processor has AVX2.
            return unsafe { unit_avx2(addresses, bytes) };
        }
        unit_plain(addresses, bytes)
    }

    /// Returns whether any lane's offset in the window is beyond `last`, or its address misaligned.
    #[inline(always)]
    fn any_bad<const L: usize>(&self, addresses: &[u64; L], start: u64, last: u64, bytes: u64) -> bool {
        if self.avx2 {
            // SAFETY: the processor has AVX2.
            return unsafe { any_bad_avx2(addresses, start, last, bytes) };
        }
        bad_plain(addresses, start, last, bytes) != 0
    }

    /// Returns a bit for each lane whose offset in the window is beyond `last`, or whose address is
    /// misaligned.
    #[inline(always)]
    fn bad(&self, addresses: &[u64; LANES], start: u64, last: u64, bytes: u64) -> u32 {
        if self.avx2 {
            // SAFETY: the processor has AVX2.
            return unsafe { bad_avx2(addresses, start, last, bytes) };
        }
        bad_plain(addresses, start, last, bytes)
    }

    /// Does the same as [`View::check`] for accesses outside the window: looks up each lane in the table.
    #[cold]
    #[inline(never)]
    fn check_each(
        &self,
        window: &mut Window,
        addresses: &[u64; LANES],
        mask: u32,
        bytes: u64,
        write: bool,
    ) -> Result<(), Fault> {
        for lane in 0..LANES as u32 {
            let address = addresses[lane as usize];
            if mask >> lane & 1 == 0 {
                continue;
            }
            if !address.is_multiple_of(bytes) {
                return Err(Fault { kind: FaultKind::Misaligned, address, bytes: bytes as u32, lane, write });
            }
            if !self.knows(window) || !window.holds(address, bytes, write) {
                self.look_up(window, address, bytes, lane, write)?;
            }
        }
        Ok(())
    }

    /// Loads one element per lane. Lanes outside `mask` keep their values in `out`. After a fault no value in
    /// `out` has changed.
    #[inline(always)]
    pub fn load<T: Element>(
        &self,
        window: &mut Window,
        addresses: &[u64; LANES],
        mask: u32,
        out: &mut [T; LANES],
    ) -> Result<(), Fault> {
        let shape = self.check(window, addresses, mask, T::BYTES, false)?;
        let first = addresses[0];
        if shape == AddressPattern::Unit && first.is_multiple_of(u64::BYTES) {
            for (index, piece) in out.as_mut_bytes().chunks_exact_mut(8).enumerate() {
                // SAFETY: all lanes' elements are adjacent within an extent, and the first is aligned to 8
                // bytes.
                let value = unsafe { <u64 as Raw>::read(self.pointer(first + 8 * index as u64)) };
                piece.copy_from_slice(&value.to_ne_bytes());
            }
            return Ok(());
        }
        for_active(mask, |lane| {
            // SAFETY: `check` found each active lane's address aligned and within an extent of this view's
            // table.
            out[lane] = unsafe { <T as Raw>::read(self.pointer(addresses[lane])) };
        });
        Ok(())
    }

    /// Loads one element per lane and passes it to `put` with the lane's index, for loads that extend. After
    /// a fault `put` has not been called.
    #[inline(always)]
    pub fn load_with<T: Element>(
        &self,
        window: &mut Window,
        addresses: &[u64; LANES],
        mask: u32,
        mut put: impl FnMut(usize, T),
    ) -> Result<(), Fault> {
        self.check(window, addresses, mask, T::BYTES, false)?;
        for_active(mask, |lane| {
            // SAFETY: as in `load`.
            put(lane, unsafe { <T as Raw>::read(self.pointer(addresses[lane])) });
        });
        Ok(())
    }

    /// Loads `N` adjacent elements per lane, for the first `L` lanes (a multiple of eight), from
    /// `bases[lane] + offset`, which is a multiple of `align`, itself a multiple of an element's alignment.
    /// `put` gets the values of eight lanes at a time, so that they become vectors: the number of the group
    /// of lanes, the number of the element, the values. Returns false if nothing was loaded because the
    /// window does not contain them; the other functions then load them or report the fault.
    #[inline(always)]
    pub fn load_eights<T: Element, const N: usize, const L: usize>(
        &self,
        window: &Window,
        bases: &[u64; L],
        offset: u64,
        align: u64,
        mut put: impl FnMut(usize, usize, [T; 8]),
    ) -> bool {
        const { assert!(N.is_power_of_two(), "vectors have 1, 2, 4 or 8 elements") };
        const { assert!(L <= LANES && L.is_multiple_of(8), "lanes are taken by eights") };
        let bytes = T::BYTES * N as u64;
        let aligned = align.is_multiple_of(T::ALIGN) && offset.is_multiple_of(align);
        let known = self.knows(window) && window.bytes >= bytes && aligned;
        // The window is moved down by the offset that is added to the bases.
        let start = window.start.wrapping_sub(offset);
        if !known || self.any_bad(bases, start, window.bytes - bytes, align) {
            return false;
        }
        // Otherwise the compiler would extract the addresses from the compared vectors, and load everything
        // before the first `put`. Both are slower.
        let (eights, _) = std::hint::black_box(bases).as_chunks::<8>();
        for (index, eight) in eights.iter().enumerate() {
            for element in 0..N {
                let offset = offset.wrapping_add(T::BYTES * element as u64);
                // SAFETY: each lane's address was found aligned and all of its elements within an extent of
                // this view's table.
                let read = |base: u64| unsafe { <T as Raw>::read(self.pointer(base.wrapping_add(offset))) };
                put(index, element, eight.map(read));
                std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::AcqRel);
            }
        }
        true
    }

    /// Loads `count` adjacent elements per lane, a power of two, and passes each to `put` with the numbers of
    /// its lane and its element. Every address is a multiple of the total size of the elements.
    #[inline(always)]
    pub fn load_vec<T: Element>(
        &self,
        window: &mut Window,
        addresses: &[u64; LANES],
        mask: u32,
        mut put: impl FnMut(usize, usize, T),
        count: usize,
    ) -> Result<(), Fault> {
        assert!(count.is_power_of_two(), "vectors have 1, 2, 4 or 8 elements");
        self.check(window, addresses, mask, T::BYTES * count as u64, false)?;
        for_active(mask, |lane| {
            for element in 0..count {
                let pointer = self.pointer(addresses[lane] + T::BYTES * element as u64);
                // SAFETY: `check` found all of each active lane's vector within an extent, and aligned.
                put(lane, element, unsafe { <T as Raw>::read(pointer) });
            }
        });
        Ok(())
    }

    /// Stores one element per lane. If lanes have the same address, the highest lane is stored last. After a
    /// fault nothing has been stored.
    #[inline(always)]
    pub fn store<T: Element>(
        &self,
        window: &mut Window,
        addresses: &[u64; LANES],
        mask: u32,
        values: &[T; LANES],
    ) -> Result<(), Fault> {
        let shape = self.check(window, addresses, mask, T::BYTES, true)?;
        let first = addresses[0];
        if shape == AddressPattern::Unit && first.is_multiple_of(u64::BYTES) {
            let (pieces, _) = values.as_bytes().as_chunks::<8>();
            for (index, piece) in pieces.iter().enumerate() {
                let value = u64::from_ne_bytes(*piece);
                // SAFETY: as in `load`, and the extent is writable.
                unsafe { <u64 as Raw>::write(self.pointer(first + 8 * index as u64), value) };
            }
            return Ok(());
        }
        for_active(mask, |lane| {
            // SAFETY: `check` found each active lane's address aligned and within a writable extent.
            unsafe { <T as Raw>::write(self.pointer(addresses[lane]), values[lane]) };
        });
        Ok(())
    }

    /// Stores `count` adjacent elements per lane, a power of two, which `get` returns for the numbers of the
    /// lane and the element. Every address is a multiple of the total size of the elements.
    #[inline(always)]
    pub fn store_vec<T: Element>(
        &self,
        window: &mut Window,
        addresses: &[u64; LANES],
        mask: u32,
        mut get: impl FnMut(usize, usize) -> T,
        count: usize,
    ) -> Result<(), Fault> {
        assert!(count.is_power_of_two(), "vectors have 1, 2, 4 or 8 elements");
        self.check(window, addresses, mask, T::BYTES * count as u64, true)?;
        for_active(mask, |lane| {
            for element in 0..count {
                let pointer = self.pointer(addresses[lane] + T::BYTES * element as u64);
                // SAFETY: as in `store`, for all of each active lane's vector.
                unsafe { <T as Raw>::write(pointer, get(lane, element)) };
            }
        });
        Ok(())
    }

    /// Atomically reads, changes and writes one element per lane, in the order of the lanes. `change`
    /// computes the new value from the lane and the old value, and is called again if another thread changed
    /// the element meanwhile. `old` receives the previous values.
    #[inline(always)]
    pub fn rmw<T: Cell>(
        &self,
        window: &mut Window,
        addresses: &[u64; LANES],
        mask: u32,
        mut change: impl FnMut(usize, T) -> T,
        old: &mut [T; LANES],
    ) -> Result<(), Fault> {
        self.check(window, addresses, mask, T::BYTES, true)?;
        for_active(mask, |lane| {
            let pointer = self.pointer(addresses[lane]);
            // SAFETY: as in `store`.
            old[lane] = unsafe { <T as RawCell>::update(pointer, |value| change(lane, value)) };
        });
        Ok(())
    }
}
