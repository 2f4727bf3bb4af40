//! Views: snapshots through which memory is accessed. Whole ranges and values that a warp shares are here,
//! accesses of single lanes in `warp`.

use std::sync::Arc;

use super::element::sealed::Raw;
use super::element::{Element, Halves};
use super::lanes::{LANES, has_avx2};
use super::table::{Extent, Table};
use crate::fault::{Fault, FaultKind, Illegal};

/// Memory that others may write at any moment. It is copied from and to, and never referred to.
pub type SharedSlice<'a> = vm_memory::VolatileSlice<'a, ()>;

/// The mappings of an arena at one moment, and the memory behind them. Clones are cheap.
#[derive(Clone, Debug)]
pub struct View {
    pub(super) table: Arc<Table>,
    /// Pointer to where device address 0 would be.
    pub(super) zero: *mut u8,
    pub(super) number: u64,
    /// Whether the processor has AVX2.
    pub(super) avx2: bool,
}

// SAFETY: `zero` belongs to the table's reservation, which is Send and Sync; accesses are atomic or volatile.
unsafe impl Send for View {}
// SAFETY: as above.
unsafe impl Sync for View {}

/// Where a memory instruction last found what it accessed: the next access is likely there too. A default one
/// knows nothing; one that another view has filled counts as such.
#[derive(Clone, Copy, Debug, Default)]
pub struct Window {
    pub(super) start: u64,
    /// Bytes that may be read; 0 of a default one.
    pub(super) bytes: u64,
    /// Bytes that may be written: `bytes` or 0.
    pub(super) writable: u64,
    /// Number of the table that it is from.
    pub(super) table: u64,
}

impl Window {
    /// The window that covers an extent of the table with this number.
    pub(super) fn covering(extent: &Extent, table: u64) -> Self {
        let bytes = extent.end - extent.start;
        Self { start: extent.start, bytes, writable: if extent.writable { bytes } else { 0 }, table }
    }

    /// Whether `bytes` at `address` are within, for reading or writing.
    #[inline(always)]
    pub(super) const fn holds(&self, address: u64, bytes: u64, write: bool) -> bool {
        let room = if write { self.writable } else { self.bytes };
        let offset = address.wrapping_sub(self.start);
        room >= bytes && offset <= room - bytes
    }
}

impl View {
    pub(crate) fn new(table: Arc<Table>) -> Self {
        let zero = table.reservation.pointer(table.base.wrapping_neg());
        let number = table.number;
        Self { table, zero, number, avx2: has_avx2() }
    }

    /// Whether `window` speaks of this view.
    #[inline(always)]
    pub(super) const fn knows(&self, window: &Window) -> bool {
        window.table == self.number
    }

    /// The pointer to a device address.
    #[inline(always)]
    pub(super) const fn pointer(&self, address: u64) -> *mut u8 {
        self.zero.wrapping_add(address as usize)
    }

    /// Makes `window` the one around `address` if `bytes` there can be accessed.
    pub(super) fn look_up(
        &self,
        window: &mut Window,
        address: u64,
        bytes: u64,
        lane: u32,
        write: bool,
    ) -> Result<(), Fault> {
        let fault = |kind| Err(Fault { kind, address, bytes: bytes as u32, lane, write });
        if !address.is_multiple_of(bytes) {
            return fault(FaultKind::Misaligned);
        }
        let Some(extent) = self.table.find(address) else { return fault(FaultKind::Illegal) };
        let found = Window::covering(extent, self.number);
        if !found.holds(address, bytes, write) {
            return fault(FaultKind::Illegal);
        }
        *window = found;
        Ok(())
    }

    /// Checks one access that a warp shares.
    #[inline(always)]
    fn check_uniform(&self, window: &mut Window, address: u64, bytes: u64, write: bool) -> Result<(), Fault> {
        if self.knows(window) && window.holds(address, bytes, write) && address.is_multiple_of(bytes) {
            return Ok(());
        }
        self.look_up_one(window, address, bytes, write)
    }

    #[cold]
    #[inline(never)]
    fn look_up_one(&self, window: &mut Window, address: u64, bytes: u64, write: bool) -> Result<(), Fault> {
        self.look_up(window, address, bytes, 0, write)
    }

    /// Loads one element: an access of a warp whose lanes agree.
    #[inline(always)]
    pub fn load_uniform<T: Element>(&self, window: &mut Window, address: u64) -> Result<T, Fault> {
        let [value] = self.load_uniform_vec(window, address)?;
        Ok(value)
    }

    /// Loads two elements of 16 bits side by side where the window has them. If not, [`View::load_uniform`]
    /// does it or says why.
    #[inline(always)]
    pub fn load_halves(&self, window: &Window, address: u64) -> Option<u32> {
        let known = self.knows(window) && window.holds(address, Halves::BYTES, false);
        // SAFETY: checked just now: even, and within an extent of the table that this view holds.
        (known && address.is_multiple_of(2)).then(|| unsafe { Halves::read(self.pointer(address)) }.0)
    }

    /// Loads `N` elements that follow each other. Their address is a multiple of the size of all of them.
    #[inline(always)]
    pub fn load_uniform_vec<T: Element, const N: usize>(
        &self,
        window: &mut Window,
        address: u64,
    ) -> Result<[T; N], Fault> {
        self.check_uniform(window, address, T::BYTES * N as u64, false)?;
        Ok(std::array::from_fn(|element| {
            let pointer = self.pointer(address + T::BYTES * element as u64);
            // SAFETY: checked just now: aligned, and within an extent of the table that this view holds.
            unsafe { <T as Raw>::read(pointer) }
        }))
    }

    /// Stores one element: an access of a warp whose lanes agree on address and value.
    #[inline(always)]
    pub fn store_uniform<T: Element>(
        &self,
        window: &mut Window,
        address: u64,
        value: T,
    ) -> Result<(), Fault> {
        self.check_uniform(window, address, T::BYTES, true)?;
        // SAFETY: checked just now: aligned, and within a writable extent of the table that this view holds.
        unsafe { <T as Raw>::write(self.pointer(address), value) };
        Ok(())
    }

    /// A range to be read, for copies. Empty ranges are always good.
    pub fn readable(&self, address: u64, bytes: u64) -> Result<SharedSlice<'_>, Illegal> {
        self.range(address, bytes, false)
    }

    /// A range to be read and written, for copies.
    pub fn writable(&self, address: u64, bytes: u64) -> Result<SharedSlice<'_>, Illegal> {
        self.range(address, bytes, true)
    }

    fn range(&self, address: u64, bytes: u64, write: bool) -> Result<SharedSlice<'_>, Illegal> {
        let illegal = Illegal { address, bytes };
        if bytes > 0 {
            let extent = self.table.find(address).ok_or(illegal)?;
            if !Window::covering(extent, self.number).holds(address, bytes, write) {
                return Err(illegal);
            }
        }
        let (pointer, length) = (self.pointer(address), bytes as usize);
        // SAFETY: the range is empty or within an extent, whose pages are mapped while the table lives, that
        // is at least as long as this borrow of the view. Everybody accesses it by atomics or volatile
        // copies.
        Ok(unsafe { SharedSlice::new(pointer, length) })
    }
}

const _: () = assert!(LANES == u32::BITS as usize);
