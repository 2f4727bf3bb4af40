//! A call's record in the mapped file, from its start to its end.

use core::mem::offset_of;
use core::ptr;
use core::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

use vgpu_trace_format::{NOT_FOLLOWED, Record, RecordKind};

/// The record of a call in flight.
#[derive(Clone, Copy)]
pub struct Entry {
    record: *mut Record,
    generation: u32,
    /// Bit in `Header::taken` of a call in the header of a full file; 0 for any other call.
    head: u32,
}

impl Entry {
    /// Entry of a call that has no record.
    pub const NONE: Self = Self { record: ptr::null_mut(), generation: 0, head: 0 };

    /// Creates the entry for a record in the file of a generation. `head` is 0, or the call's bit in
    /// `Header::taken`.
    pub fn new(record: *mut Record, generation: u32, head: u32) -> Self {
        Self { record, generation, head }
    }

    /// Returns whether the record is in the file of that generation: a forked child may return from a call
    /// that its parent started.
    pub fn is_of(&self, generation: u32) -> bool {
        !self.record.is_null() && self.generation == generation
    }

    /// Stores the result and the end time of the call. Returns false for a call in the header of the file,
    /// whose entry is now empty and whose bit the caller must clear.
    #[inline]
    pub fn end(&self, result: u64, time: impl FnOnce() -> u64) -> bool {
        if self.head != 0 {
            self.empty();
            return false;
        }
        // SAFETY: the record is mapped and this call's; an aligned u64.
        unsafe {
            AtomicU64::from_ptr(self.record.wrapping_byte_add(offset_of!(Record, result)).cast::<u64>())
        }
        .store(result, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { AtomicU64::from_ptr(self.record.wrapping_byte_add(offset_of!(Record, end)).cast::<u64>()) }
            .store(time(), Ordering::Release);
        true
    }

    /// Stores that the end of the call will not be recorded. Returns false as [`Entry::end`] does.
    pub fn lose(&self) -> bool {
        if self.head != 0 {
            self.empty();
            return false;
        }
        // SAFETY: as in `end`; an aligned u16.
        unsafe {
            AtomicU16::from_ptr(self.record.wrapping_byte_add(offset_of!(Record, flags)).cast::<u16>())
        }
        .store(NOT_FOLLOWED, Ordering::Relaxed);
        true
    }

    /// Returns the bit in `Header::taken` of a call in the header of the file.
    pub fn head(&self) -> u32 {
        self.head
    }

    /// Marks a call in the header as no longer in flight.
    #[cold]
    fn empty(&self) {
        // SAFETY: as in `end`; an aligned u32.
        unsafe { AtomicU32::from_ptr(self.record.wrapping_byte_add(offset_of!(Record, kind)).cast::<u32>()) }
            .store(RecordKind::Empty as u32, Ordering::Release);
    }

    /// Counts one more call, made at the given time.
    pub fn add(&self, time: u64) {
        // SAFETY: the record is one of this file that there is room for; an aligned u64.
        unsafe {
            AtomicU64::from_ptr(self.record.wrapping_byte_add(offset_of!(Record, result)).cast::<u64>())
        }
        .fetch_add(1, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { AtomicU64::from_ptr(self.record.wrapping_byte_add(offset_of!(Record, end)).cast::<u64>()) }
            .store(time, Ordering::Relaxed);
    }
}
