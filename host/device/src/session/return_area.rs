//! A session's return area, which the guest reads: replies, completion words, and the error that no reply can
//! carry. This module defines the order of the stores to each.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use vgpu_wire::{Mark, area};

use crate::memory::window::{SharedSlice, Window};

/// An error that is found after the call that caused it has returned in the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LateError {
    /// Error code, a `CUresult`.
    pub code: u32,
    /// Whether every later call of the guest reports the error.
    pub sticky: bool,
    /// Number of the message that caused it.
    pub message: u64,
}

/// Reason for which work failed. The guest shows it to the user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FailureReason<'a> {
    /// Mangled name of the kernel that failed, or empty if it was no kernel.
    pub kernel: &'a str,
    /// Reason as a sentence.
    pub reason: &'a str,
    /// Address that the work must not access, if the failure was an access.
    pub address: Option<u64>,
}

/// Reply slot and number of a message that has an answer.
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

/// Return area of a session. Fields are at the offsets of [`area`].
#[derive(Debug)]
pub struct ReturnArea<'a> {
    memory: &'a Window,
    base: u64,
}

impl<'a> ReturnArea<'a> {
    /// Returns the area at offset `base` of `memory`.
    pub(crate) const fn new(memory: &'a Window, base: u64) -> Self {
        Self { memory, base }
    }

    /// Returns the 64-bit field at offset `field` of the area.
    #[must_use]
    pub fn u64_at(&self, field: u64) -> &'a AtomicU64 {
        self.memory.u64_at(self.base + field)
    }

    /// Returns the 32-bit field at offset `field` of the area.
    #[must_use]
    pub fn u32_at(&self, field: u64) -> &'a AtomicU32 {
        self.memory.u32_at(self.base + field)
    }

    /// Returns `bytes` from offset `field` of the area, or `None` beyond the end of its memory.
    #[must_use]
    pub fn slice(&self, field: u64, bytes: u64) -> Option<SharedSlice<'a>> {
        self.memory.slice(self.base + field, bytes)
    }

    /// Clears the whole area.
    pub(crate) fn clear(&self) {
        self.memory.zero(self.base, area::RETURN_BYTES);
    }

    /// Stores an answer. The ticket is stored last, so that a guest that reads it finds the rest.
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

    /// Returns the value of a completion word.
    pub(crate) fn mark_value(&self, word: u32) -> u64 {
        let word = area::RETURN_WORDS + u64::from(word) * area::WORD_BYTES;
        self.u64_at(word + area::WORD_VALUE).load(Ordering::Acquire)
    }

    /// Stores the reason of the error that is stored next. The number is 0 while the rest changes, so that a
    /// guest never mixes two explanations.
    pub(crate) fn store_why(&self, message: u64, why: &FailureReason<'_>) {
        let (kernel, reason) = (area::reply_text(why.kernel), area::reply_text(why.reason));
        let bytes = kernel.len() + reason.len();
        let number = self.u64_at(area::RETURN_WHY);
        number.store(0, Ordering::Relaxed);
        fence(Ordering::Release);
        let mut at = area::RETURN_WHY_TEXT;
        for text in [kernel, reason] {
            if let Some(room) = self.slice(at, text.len() as u64) {
                room.copy_from(text);
            }
            at += text.len() as u64;
        }
        let flags = if why.address.is_some() { area::WHY_ADDRESS } else { 0 };
        self.u32_at(area::RETURN_WHY_FLAGS).store(flags, Ordering::Relaxed);
        self.u32_at(area::RETURN_WHY_BYTES).store(bytes as u32, Ordering::Relaxed);
        self.u32_at(area::RETURN_WHY_KERNEL).store(kernel.len() as u32, Ordering::Relaxed);
        self.u64_at(area::RETURN_WHY_AT).store(why.address.unwrap_or_default(), Ordering::Relaxed);
        number.store(message, Ordering::Release);
    }

    /// Stores an error. With `ended`, the error ends the session.
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
