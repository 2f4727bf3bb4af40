//! Reserved address space, and the memory that is mapped into it.
//!
//! Linux limits the number of mappings of a process, by default to 65,530. So a reservation is made
//! accessible in large pieces, of which adjacent ones form a single mapping, and allocations share them: a
//! guest may make any number of allocations. The table, not the processor, keeps kernels from memory that is
//! not allocated.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ptr::{NonNull, null_mut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::mm::{
    Advice, MapFlags, MprotectFlags, ProtFlags, madvise, mmap, mmap_anonymous, mprotect, munmap,
};

use super::budget::MappingPermit;
use super::physical::Physical;
use crate::page::{LARGE_PAGE, OPENED_TOGETHER, PAGE};

/// Flags of anonymous memory without reserved swap. The device's account limits how much is used.
const ANONYMOUS: MapFlags = MapFlags::PRIVATE.union(MapFlags::NORESERVE);

/// A range of address space that this value owns.
#[derive(Debug)]
pub(crate) struct Reservation {
    /// Address that `mmap` returned, for `munmap`. It is at most [`LARGE_PAGE`] below `start`.
    mapped: NonNull<u8>,
    mapped_bytes: usize,
    /// First byte that is used, at a multiple of [`LARGE_PAGE`].
    start: NonNull<u8>,
    bytes: u64,
    state: Mutex<ReservationState>,
}

#[derive(Debug, Default)]
struct ReservationState {
    /// Lengths in bytes of the parts that existing [`Pages`] own, by offset.
    taken: BTreeMap<u64, u64>,
    /// Numbers of the pieces of [`OPENED_TOGETHER`] bytes that are readable and writable. Physical memory may
    /// be mapped over parts of them.
    opened: BTreeSet<u64>,
}

// SAFETY: the pointers name address space that the value owns, not a thread's; `state` has its lock.
unsafe impl Send for Reservation {}
// SAFETY: as above; methods that take `&self` change mappings only where `taken` shows that they may.
unsafe impl Sync for Reservation {}

impl Reservation {
    /// Reserves `bytes`, a multiple of [`PAGE`], without allocating memory.
    pub(crate) fn new(bytes: u64) -> io::Result<Self> {
        let whole = usize::try_from(bytes)
            .ok()
            .and_then(|bytes| bytes.checked_add(LARGE_PAGE as usize))
            .ok_or(io::ErrorKind::InvalidInput)?;
        // SAFETY: the system chooses the address, so no existing mapping is touched.
        let mapped = unsafe { mmap_anonymous(null_mut(), whole, ProtFlags::empty(), ANONYMOUS) }?;
        let mapped = NonNull::new(mapped.cast::<u8>()).ok_or(io::ErrorKind::Other)?;
        let skip = mapped.as_ptr().align_offset(LARGE_PAGE as usize);
        // SAFETY: `skip` is less than LARGE_PAGE, and the mapping is `bytes + LARGE_PAGE` long.
        let start = unsafe { mapped.add(skip) };
        Ok(Self { mapped, mapped_bytes: whole, start, bytes, state: Mutex::default() })
    }

    /// Returns the pointer to an offset. It must not be dereferenced unless memory is mapped there.
    #[inline(always)]
    pub(super) const fn pointer(&self, offset: u64) -> *mut u8 {
        self.start.as_ptr().wrapping_add(offset as usize)
    }

    fn state(&self) -> MutexGuard<'_, ReservationState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that pages own a part. Returns false if the part exceeds the reservation or overlaps an owned
    /// one.
    fn claim(&self, offset: u64, bytes: u64) -> bool {
        let Some(end) = offset.checked_add(bytes).filter(|&end| end <= self.bytes) else { return false };
        let aligned = offset.is_multiple_of(PAGE) && bytes.is_multiple_of(PAGE) && bytes > 0;
        let mut state = self.state();
        let before = state.taken.range(..end).next_back();
        if !aligned || before.is_some_and(|(&start, &bytes)| start + bytes > offset) {
            return false;
        }
        state.taken.insert(offset, bytes);
        true
    }

    /// Makes the pieces that contain a part readable and writable, unless they are already. With `large`,
    /// also asks for large pages.
    fn open(&self, offset: u64, bytes: u64, large: bool) -> io::Result<()> {
        let mut state = self.state();
        for piece in pieces(offset, bytes) {
            if state.opened.contains(&piece) {
                continue;
            }
            let start = piece * OPENED_TOGETHER;
            let (pointer, length) =
                (self.pointer(start).cast(), (self.bytes - start).min(OPENED_TOGETHER) as usize);
            // SAFETY: the piece is within the reservation. Memory of others that is mapped over it can be
            // read and written already.
            unsafe { mprotect(pointer, length, MprotectFlags::READ | MprotectFlags::WRITE) }?;
            if large {
                // SAFETY: as above; the advice changes no content. A system without large pages refuses, and
                // nothing is lost.
                let _ = unsafe { madvise(pointer, length, Advice::LinuxHugepage) };
            }
            state.opened.insert(piece);
        }
        Ok(())
    }

    /// Returns the access rights that a part has while no [`Pages`] own it: those of its piece.
    fn rights(&self, offset: u64, bytes: u64) -> ProtFlags {
        let state = self.state();
        if pieces(offset, bytes).any(|piece| state.opened.contains(&piece)) {
            ProtFlags::READ | ProtFlags::WRITE
        } else {
            ProtFlags::empty()
        }
    }
}

/// Returns the numbers of the pieces that contain a part, which is not empty.
fn pieces(offset: u64, bytes: u64) -> impl Iterator<Item = u64> {
    offset / OPENED_TOGETHER..=(offset + bytes - 1) / OPENED_TOGETHER
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // SAFETY: the range belongs to this value, and all `Pages` and tables, which hold it, are gone.
        let unmapped = unsafe { munmap(self.mapped.as_ptr().cast(), self.mapped_bytes) };
        debug_assert!(unmapped.is_ok(), "a whole mapping can be unmapped");
    }
}

/// Reason for which pages cannot be mapped.
#[derive(Debug)]
pub(crate) enum PagesError {
    /// The part is not within the reservation, not of whole pages, empty, or owned by other pages.
    Taken,
    /// A system call failed.
    System(io::Error),
}

/// A part of a reservation with memory, readable and writable.
#[derive(Debug)]
pub(crate) struct Pages {
    reservation: Arc<Reservation>,
    offset: u64,
    bytes: u64,
    /// Physical memory that is mapped, with its share of the process's mappings, or `None` for anonymous
    /// memory.
    shared: Option<(Physical, MappingPermit)>,
}

impl Pages {
    /// Maps zeroed memory at `offset`. Pages occupy memory once they are written.
    pub(crate) fn anonymous(
        reservation: &Arc<Reservation>,
        offset: u64,
        bytes: u64,
    ) -> Result<Self, PagesError> {
        let pages = Self::claim(reservation, offset, bytes, None)?;
        reservation.open(offset, bytes, bytes >= LARGE_PAGE).map_err(PagesError::System)?;
        Ok(pages)
    }

    /// Maps a range of `physical` at `offset`. The caller has checked that the range is within it. Fails with
    /// `OutOfMemory` if the process has too many mappings.
    pub(crate) fn shared(
        reservation: &Arc<Reservation>,
        offset: u64,
        bytes: u64,
        physical: &Physical,
        physical_offset: u64,
    ) -> Result<Self, PagesError> {
        let permit =
            MappingPermit::acquire().ok_or_else(|| PagesError::System(io::ErrorKind::OutOfMemory.into()))?;
        let pages = Self::claim(reservation, offset, bytes, Some((physical.clone(), permit)))?;
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::FIXED | MapFlags::NORESERVE;
        let (pointer, length) = (pages.pointer().cast(), pages.length());
        let at = physical.offset() + physical_offset;
        // SAFETY: `claim` has checked that the range is within the reservation and had no owner.
        let mapped = unsafe { mmap(pointer, length, rights, flags, physical.file(), at) };
        mapped.map_err(|error| PagesError::System(error.into()))?;
        Ok(pages)
    }

    fn claim(
        reservation: &Arc<Reservation>,
        offset: u64,
        bytes: u64,
        shared: Option<(Physical, MappingPermit)>,
    ) -> Result<Self, PagesError> {
        if !reservation.claim(offset, bytes) {
            return Err(PagesError::Taken);
        }
        Ok(Self { reservation: Arc::clone(reservation), offset, bytes, shared })
    }

    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) const fn offset(&self) -> u64 {
        self.offset
    }

    pub(super) const fn reservation(&self) -> &Arc<Reservation> {
        &self.reservation
    }

    fn pointer(&self) -> *mut u8 {
        self.reservation.pointer(self.offset)
    }

    const fn length(&self) -> usize {
        self.bytes as usize
    }

    /// Returns the memory to the system. The next allocation here reads as zeros.
    fn give_back(&self) -> io::Result<()> {
        let (pointer, length) = (self.pointer().cast(), self.length());
        if self.shared.is_none() {
            // SAFETY: the part is within the reservation and belongs to this value alone, and nothing refers
            // to its content any more. It is private memory, which reads as zeros after this.
            return Ok(unsafe { madvise(pointer, length, Advice::LinuxDontNeed) }?);
        }
        let rights = self.reservation.rights(self.offset, self.bytes);
        // SAFETY: as above; the new mapping is the same as the original one.
        let mapped = unsafe { mmap_anonymous(pointer, length, rights, ANONYMOUS | MapFlags::FIXED) };
        Ok(mapped.map(drop)?)
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // If the system refuses, the part stays taken and is never used again. Nothing can access it, so only
        // its addresses and memory are lost until the session ends.
        if self.give_back().is_ok() {
            self.reservation.state().taken.remove(&self.offset);
        }
    }
}
