//! Views: snapshots of the mappings, through which memory is accessed. This file has accesses to ranges, and
//! accesses that a warp makes as one; `warp` has those with an address per lane.

use std::mem::offset_of;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use super::element::sealed::Raw;
use super::element::{Element, Halves};
use super::lanes::{LANES, has_avx2};
use super::table::{Extent, MappingTable};
use crate::fault::{Fault, FaultKind, Illegal};

/// Memory that others may write at any time. It is only copied, never referenced.
pub type SharedSlice<'a> = vm_memory::VolatileSlice<'a, ()>;

/// The mappings of an arena at one moment, with their memory. Clones are cheap.
#[derive(Clone, Debug)]
pub struct View {
    pub(super) table: Arc<MappingTable>,
    /// Pointer that corresponds to device address 0.
    pub(super) zero: *mut u8,
    pub(super) number: u64,
    /// Whether the processor has AVX2.
    pub(super) avx2: bool,
}

// SAFETY: `zero` belongs to the table's reservation, which is Send and Sync; accesses are atomic or volatile.
unsafe impl Send for View {}
// SAFETY: as above.
unsafe impl Sync for View {}

/// The extent of the last access of a memory instruction, which likely contains the next one too. A default
/// window is empty, and a window that another view filled is treated as empty.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Window {
    pub(super) start: u64,
    /// Number of bytes that may be read, which is 0 in a default window.
    pub(super) bytes: u64,
    /// Number of bytes that may be written, which is `bytes` or 0.
    pub(super) writable: u64,
    /// Number of the table that the extent is from.
    pub(super) table: u64,
}

/// Windows that only one view fills: their contents are valid as long as that view is used.
#[derive(Debug)]
pub struct Windows<'a>(&'a mut [Window]);

impl Deref for Windows<'_> {
    type Target = [Window];

    #[inline(always)]
    fn deref(&self) -> &[Window] {
        self.0
    }
}

impl DerefMut for Windows<'_> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [Window] {
        self.0
    }
}

impl Window {
    /// Offset of the first address in a window, for machine code.
    pub const START: usize = offset_of!(Self, start);
    /// Offset of the number of readable bytes in a window, for machine code.
    pub const BYTES: usize = offset_of!(Self, bytes);
    /// Offset of the number of writable bytes in a window, for machine code.
    pub const WRITABLE: usize = offset_of!(Self, writable);

    /// Makes the window of an extent of the table with this number.
    pub(super) fn covering(extent: &Extent, table: u64) -> Self {
        let bytes = extent.end - extent.start;
        Self { start: extent.start, bytes, writable: if extent.writable { bytes } else { 0 }, table }
    }

    /// Returns whether `bytes` at `address` are within the window, for reading or writing.
    #[inline(always)]
    pub(super) const fn holds(&self, address: u64, bytes: u64, write: bool) -> bool {
        let room = if write { self.writable } else { self.bytes };
        let offset = address.wrapping_sub(self.start);
        room >= bytes && offset <= room - bytes
    }
}

impl View {
    pub(crate) fn new(table: Arc<MappingTable>) -> Self {
        let zero = table.reservation.pointer(table.base.wrapping_neg());
        let number = table.number;
        Self { table, zero, number, avx2: has_avx2() }
    }

    /// Returns the pointer that corresponds to device address 0, for machine code that compares addresses
    /// with windows itself.
    #[inline]
    pub const fn zero(&self) -> *mut u8 {
        self.zero
    }

    /// Uses windows for accesses through this view alone. Those that another table has filled are emptied.
    pub fn windows<'a>(&self, windows: &'a mut [Window]) -> Windows<'a> {
        for window in &mut *windows {
            if !self.knows(window) {
                *window = Window::default();
            }
        }
        Windows(windows)
    }

    /// Returns whether `window` was filled by this view's table.
    #[inline(always)]
    pub(super) const fn knows(&self, window: &Window) -> bool {
        window.table == self.number
    }

    /// Returns the pointer to a device address. It may be dereferenced only where this view's table has an
    /// extent.
    #[inline(always)]
    pub(super) const fn pointer(&self, address: u64) -> *mut u8 {
        self.zero.wrapping_add(address as usize)
    }

    /// Replaces `window` by the extent around `address`, if `bytes` there can be accessed. Otherwise leaves
    /// the window as it is and returns the fault of `lane`.
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

    /// Checks an access that a warp makes as one, because its lanes agree on the address.
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

    /// Loads one element for a warp whose lanes agree on the address. An address that is misaligned or not
    /// mapped for reading is a fault of lane 0.
    #[inline(always)]
    pub fn load_uniform<T: Element>(&self, window: &mut Window, address: u64) -> Result<T, Fault> {
        let [value] = self.load_uniform_vec(window, address)?;
        Ok(value)
    }

    /// Loads two adjacent elements of 16 bits if the window contains them. If it does not,
    /// [`View::load_uniform`] loads them or reports the fault.
    #[inline(always)]
    pub fn load_halves(&self, window: &Window, address: u64) -> Option<u32> {
        let known = self.knows(window) && window.holds(address, Halves::BYTES, false);
        // SAFETY: the check just above found the address even and within an extent of the table that this
        // view holds.
        (known && address.is_multiple_of(2)).then(|| unsafe { Halves::read(self.pointer(address)) }.0)
    }

    /// Loads `N` adjacent elements. An address that is not a multiple of their total size, or not mapped for
    /// reading, is a fault of lane 0.
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

    /// Stores one element for a warp whose lanes agree on address and value. An address that is misaligned or
    /// not mapped for writing is a fault of lane 0.
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

    /// Returns a range to read, for copies. An empty range is always valid. Fails if the range is not within
    /// one extent.
    pub fn readable(&self, address: u64, bytes: u64) -> Result<SharedSlice<'_>, Illegal> {
        self.range(address, bytes, false)
    }

    /// Returns a range to read and write, for copies, under the conditions of [`View::readable`].
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
        // SAFETY: the range is empty or within an extent, whose pages are mapped while the table lives, which
        // is at least as long as this borrow of the view. All accesses are atomics or volatile copies.
        Ok(unsafe { SharedSlice::new(pointer, length) })
    }
}

const _: () = assert!(LANES == u32::BITS as usize);
