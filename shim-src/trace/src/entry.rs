//! A call's record, from its beginning to its end.

use core::mem::offset_of;
use core::ptr;
use core::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

use vgpu_trace_format::{Kind, NOT_FOLLOWED, Record};

use crate::file::{File, now};

/// A record of a call that is being made.
#[derive(Clone, Copy)]
pub struct Entry {
    record: *mut Record,
    generation: u32,
    /// Of a call at the head of a full file: its bit of `Header::taken`. 0 of any other.
    head: u32,
}

impl Entry {
    /// No record.
    pub const NONE: Self = Self { record: ptr::null_mut(), generation: 0, head: 0 };

    /// A record of the file of that generation; `head` is 0, or its bit among the calls at the head.
    pub fn new(record: *mut Record, generation: u32, head: u32) -> Self {
        Self { record, generation, head }
    }

    /// Whether the record is of this file: a forked child may return from a call that its parent began.
    fn here(&self, file: &File) -> bool {
        !self.record.is_null() && self.generation == file.generation()
    }

    /// Completes it.
    #[inline]
    pub fn end(&self, file: &File, result: u64) {
        if !self.here(file) {
            return;
        }
        if self.head == 0 {
            // SAFETY: the record is mapped and this call's; an aligned u64.
            unsafe {
                AtomicU64::from_ptr(self.record.wrapping_byte_add(offset_of!(Record, result)).cast::<u64>())
            }
            .store(result, Ordering::Relaxed);
            // SAFETY: as above.
            unsafe {
                AtomicU64::from_ptr(self.record.wrapping_byte_add(offset_of!(Record, end)).cast::<u64>())
            }
            .store(now(), Ordering::Release);
        } else {
            self.leave_head(file);
        }
    }

    /// What is at the head is no longer in flight.
    #[cold]
    fn leave_head(&self, file: &File) {
        // SAFETY: as in `end`; an aligned u32.
        unsafe { AtomicU32::from_ptr(self.record.wrapping_byte_add(offset_of!(Record, kind)).cast::<u32>()) }
            .store(Kind::Empty as u32, Ordering::Release);
        file.free_head(self.head);
    }

    /// Its end will not be seen.
    pub fn lose(&self, file: &File) {
        if !self.here(file) {
            return;
        }
        if self.head == 0 {
            // SAFETY: as in `end`; an aligned u16.
            unsafe {
                AtomicU16::from_ptr(self.record.wrapping_byte_add(offset_of!(Record, flags)).cast::<u16>())
            }
            .store(NOT_FOLLOWED, Ordering::Relaxed);
        } else {
            self.leave_head(file);
        }
    }

    /// Counts one more, at that time.
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
