//! Address space and the memory in it.

use std::collections::BTreeMap;
use std::io;
use std::ptr::{NonNull, null_mut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

use super::physical::Physical;
use crate::PAGE;

/// Reservations begin at multiples of this, so that large pages can be used.
const LARGE_PAGE: usize = 2 << 20;
/// Anonymous memory without a claim on swap: a device's account says how much there may be.
const ANONYMOUS: MapFlags = MapFlags::PRIVATE.union(MapFlags::NORESERVE);

/// A range of address space that is this value's own.
#[derive(Debug)]
pub(crate) struct Reservation {
    /// What `mmap` gave, for `munmap`.
    mapped: NonNull<u8>,
    mapped_bytes: usize,
    /// The first byte that is used, a multiple of [`LARGE_PAGE`].
    start: NonNull<u8>,
    bytes: u64,
    /// Parts that live [`Pages`] have: bytes by offset.
    taken: Mutex<BTreeMap<u64, u64>>,
}

// SAFETY: the pointers name address space that the value owns, not a thread's; `taken` has its lock.
unsafe impl Send for Reservation {}
// SAFETY: as above; methods that take `&self` change mappings only where `taken` shows that they may.
unsafe impl Sync for Reservation {}

impl Reservation {
    /// Reserves `bytes`, a multiple of [`PAGE`], without memory behind them.
    pub(crate) fn new(bytes: u64) -> io::Result<Self> {
        let whole = usize::try_from(bytes)
            .ok()
            .and_then(|bytes| bytes.checked_add(LARGE_PAGE))
            .ok_or(io::ErrorKind::InvalidInput)?;
        // SAFETY: the system chooses the place, so nothing that exists is touched.
        let mapped = unsafe { mmap_anonymous(null_mut(), whole, ProtFlags::empty(), ANONYMOUS) }?;
        let mapped = NonNull::new(mapped.cast::<u8>()).ok_or(io::ErrorKind::Other)?;
        let skip = mapped.as_ptr().align_offset(LARGE_PAGE);
        // SAFETY: `skip` is less than LARGE_PAGE, and the mapping is `bytes + LARGE_PAGE` long.
        let start = unsafe { mapped.add(skip) };
        Ok(Self { mapped, mapped_bytes: whole, start, bytes, taken: Mutex::default() })
    }

    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The pointer to an offset. A plain number until something is mapped there.
    #[inline(always)]
    pub(super) const fn pointer(&self, offset: u64) -> *mut u8 {
        self.start.as_ptr().wrapping_add(offset as usize)
    }

    fn taken(&self) -> MutexGuard<'_, BTreeMap<u64, u64>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a part has pages; false: it is not all within the reservation, or some of it has.
    fn take(&self, offset: u64, bytes: u64) -> bool {
        let Some(end) = offset.checked_add(bytes).filter(|&end| end <= self.bytes) else { return false };
        let aligned = offset.is_multiple_of(PAGE) && bytes.is_multiple_of(PAGE) && bytes > 0;
        let mut taken = self.taken();
        let before = taken.range(..end).next_back();
        if !aligned || before.is_some_and(|(&start, &bytes)| start + bytes > offset) {
            return false;
        }
        taken.insert(offset, bytes);
        true
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // SAFETY: the range is this value's own, and all `Pages` and tables, which hold it, are gone.
        let unmapped = unsafe { munmap(self.mapped.as_ptr().cast(), self.mapped_bytes) };
        debug_assert!(unmapped.is_ok(), "a whole mapping can be unmapped");
    }
}

/// Why there are no pages.
#[derive(Debug)]
pub(crate) enum PagesError {
    /// Not within the reservation, not in whole pages, or not free.
    Taken,
    /// The system refuses.
    System(io::Error),
}

/// A part of a reservation with memory, readable and writable.
#[derive(Debug)]
pub(crate) struct Pages {
    reservation: Arc<Reservation>,
    offset: u64,
    bytes: u64,
    /// What is mapped, where it is not memory of its own.
    _physical: Option<Physical>,
}

impl Pages {
    /// Puts zeroed memory at `offset`.
    pub(crate) fn anonymous(
        reservation: &Arc<Reservation>,
        offset: u64,
        bytes: u64,
    ) -> Result<Self, PagesError> {
        let pages = Self::take(reservation, offset, bytes, None)?;
        pages.map(ProtFlags::READ | ProtFlags::WRITE).map_err(PagesError::System)?;
        if bytes >= LARGE_PAGE as u64 {
            // SAFETY: the part is mapped and this value's own; the advice changes no content. A system without
            // large pages refuses, and nothing is lost.
            let _ = unsafe { madvise(pages.pointer().cast(), pages.length(), Advice::LinuxHugepage) };
        }
        Ok(pages)
    }

    /// Puts a range of `physical` at `offset`. The caller has checked that the range is within it.
    pub(crate) fn shared(
        reservation: &Arc<Reservation>,
        offset: u64,
        bytes: u64,
        physical: &Physical,
        physical_offset: u64,
    ) -> Result<Self, PagesError> {
        let pages = Self::take(reservation, offset, bytes, Some(physical.clone()))?;
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::FIXED | MapFlags::NORESERVE;
        let (pointer, length) = (pages.pointer().cast(), pages.length());
        // SAFETY: the range is within the reservation and nobody's until now: `take` has seen to both.
        let mapped = unsafe { mmap(pointer, length, rights, flags, physical.file(), physical_offset) };
        mapped.map_err(|error| PagesError::System(error.into()))?;
        Ok(pages)
    }

    fn take(
        reservation: &Arc<Reservation>,
        offset: u64,
        bytes: u64,
        physical: Option<Physical>,
    ) -> Result<Self, PagesError> {
        if !reservation.take(offset, bytes) {
            return Err(PagesError::Taken);
        }
        Ok(Self { reservation: Arc::clone(reservation), offset, bytes, _physical: physical })
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

    /// Replaces what is at this part by fresh anonymous memory with these rights.
    fn map(&self, rights: ProtFlags) -> io::Result<()> {
        let (pointer, length) = (self.pointer().cast(), self.length());
        // SAFETY: the part is within the reservation, and this value's alone: nothing refers to it when it is made, or when it
        // is dropped.
        let mapped = unsafe { mmap_anonymous(pointer, length, rights, ANONYMOUS | MapFlags::FIXED) };
        Ok(mapped.map(drop)?)
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // The kernel refuses when a process has as many mappings as it may: then the part stays taken and is never
        // used again. Nothing can reach it, so only address space and what it holds are lost until the session ends.
        if self.map(ProtFlags::empty()).is_ok() {
            self.reservation.taken().remove(&self.offset);
        }
    }
}
