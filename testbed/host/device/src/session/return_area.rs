//! A session's return area, which the guest reads: replies, completion words, and the error that no reply can
//! carry. Owns the order of the stores to each.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use vgpu_wire::{Mark, area};

use crate::memory::window::{SharedSlice, Window};

/// An error that is found after the call that caused it has returned in the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LateError {
    /// A `CUresult`.
    pub code: u32,
    /// Every later call reports it.
    pub sticky: bool,
    /// Number of the message that caused it.
    pub message: u64,
}

/// Where a message is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyTo {
    pub(crate) slot: u32,
    pub(crate) number: u64,
}

impl ReplyTo {
    pub(crate) const fn new(slot: u32, number: u64) -> Self {
        Self { slot, number }
    }
}

/// Where a session's return area is. Fields are at the offsets of [`area`].
#[derive(Debug)]
pub(crate) struct ReturnArea<'a> {
    memory: &'a Window,
    base: u64,
}

impl<'a> ReturnArea<'a> {
    /// The area at offset `base` of `memory`.
    pub(crate) const fn new(memory: &'a Window, base: u64) -> Self {
        Self { memory, base }
    }

    pub(crate) fn u64_at(&self, field: u64) -> &'a AtomicU64 {
        self.memory.u64_at(self.base + field)
    }

    pub(crate) fn u32_at(&self, field: u64) -> &'a AtomicU32 {
        self.memory.u32_at(self.base + field)
    }

    pub(crate) fn slice(&self, field: u64, bytes: u64) -> Option<SharedSlice<'a>> {
        self.memory.slice(self.base + field, bytes)
    }

    /// All of it reads zeros.
    pub(crate) fn clear(&self) {
        self.memory.zero(self.base, area::RETURN_BYTES);
    }

    /// Answers a message. The ticket is stored last: a guest that reads it finds the rest.
    pub(crate) fn store_reply(&self, to: ReplyTo, status: u32, data: &[u8]) {
        let slot = area::RETURN_REPLIES + u64::from(to.slot) * area::REPLY_BYTES;
        if let Some(room) = self.slice(slot + area::REPLY_DATA, area::REPLY_DATA_MAX) {
            room.copy_from(data);
        }
        self.u32_at(slot + area::REPLY_STATUS).store(status, Ordering::Relaxed);
        self.u32_at(slot + area::REPLY_LEN).store(data.len() as u32, Ordering::Relaxed);
        self.u64_at(slot + area::REPLY_TICKET).store(to.number, Ordering::Release);
    }

    /// Raises a completion word to the mark's value, with the time at which that was reached. The word never
    /// decreases.
    pub(crate) fn store_mark(&self, mark: &Mark, time: u64) {
        let word = area::RETURN_WORDS + u64::from(mark.word) * area::WORD_BYTES;
        self.u64_at(word + area::WORD_TIME).store(time, Ordering::Relaxed);
        self.u64_at(word + area::WORD_VALUE).fetch_max(mark.value, Ordering::Release);
    }

    /// The value of a completion word.
    pub(crate) fn mark_value(&self, word: u32) -> u64 {
        let word = area::RETURN_WORDS + u64::from(word) * area::WORD_BYTES;
        self.u64_at(word + area::WORD_VALUE).load(Ordering::Acquire)
    }

    /// Stores an error. `ended`: it is the last one, for the session is over.
    pub(crate) fn store_error(&self, error: LateError, ended: bool) {
        let mut flags = if error.sticky { area::ERROR_STICKY } else { 0 };
        if ended {
            flags |= area::ERROR_ENDED;
        }
        self.u32_at(area::RETURN_ERROR).store(error.code, Ordering::Relaxed);
        self.u32_at(area::RETURN_ERROR_FLAGS).store(flags, Ordering::Relaxed);
        self.u64_at(area::RETURN_ERROR_MESSAGE).store(error.message, Ordering::Release);
    }
}
