//! A channel's area as the guest uses it: names for the words that `vgpu_wire::area` places.
//!
//! The guest stores to the submit half and never loads from it; it loads from the return half and never
//! stores to it. The two may lie in different memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use vgpu_wire::area;

use crate::mapping::Mapping;

/// One channel's shared memory.
#[derive(Debug)]
pub(crate) struct Channel {
    submit: Arc<Mapping>,
    /// Offset of the area in `submit`.
    base: u64,
    returns: Arc<Mapping>,
    /// Offset of the return area in `returns`.
    back: u64,
}

/// What the host stored of its newest late error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StoredError {
    pub(crate) code: u32,
    pub(crate) flags: u32,
    pub(crate) message: u64,
}

impl Channel {
    /// The channel whose area starts at `base` of the window, and whose return area at `back` of `returns`.
    pub(crate) fn new(submit: Arc<Mapping>, base: u64, returns: Arc<Mapping>, back: u64) -> Self {
        Self { submit, base, returns, back }
    }

    /// Puts private memory in the return area's place.
    pub(crate) fn make_private(&self) -> std::io::Result<()> {
        self.returns.make_private()
    }

    /// Copies into the ring.
    ///
    /// # Safety
    /// `source` is readable for `bytes`, and no part of the ring.
    #[inline]
    pub(crate) unsafe fn put_raw(&self, at: u64, source: *const u8, bytes: usize) {
        // SAFETY: as the caller promises.
        unsafe { self.submit.copy_in(self.base + area::RING + at, source, bytes) };
    }

    /// Copies into the ring.
    #[inline]
    pub(crate) fn put(&self, at: u64, source: &[u8]) {
        self.submit.put(self.base + area::RING + at, source);
    }

    /// Publishes what lies in the ring before `tail`.
    #[inline]
    pub(crate) fn publish(&self, tail: u64) {
        self.submit.order_stores();
        self.submit.store64(self.base + area::SUBMIT + area::SUBMIT_TAIL, tail, Ordering::Release);
    }

    /// Tells the host how many threads sleep.
    pub(crate) fn set_sleepers(&self, sleepers: u32) {
        self.submit.store32(self.base + area::SUBMIT + area::SUBMIT_SLEEPERS, sleepers, Ordering::Release);
    }

    /// A field of the return area.
    #[inline]
    pub(crate) fn word(&self, offset: u64) -> u64 {
        self.returns.load64(self.back + offset, Ordering::Acquire)
    }

    /// A field of the return area.
    #[inline]
    pub(crate) fn half(&self, offset: u64, order: Ordering) -> u32 {
        self.returns.load32(self.back + offset, order)
    }

    /// Bytes of the ring consumed.
    #[inline]
    pub(crate) fn head(&self) -> u64 {
        self.word(area::RETURN_HEAD)
    }

    /// Messages carried out.
    pub(crate) fn done(&self) -> u64 {
        self.word(area::RETURN_DONE)
    }

    /// Whether the host wants the doorbell.
    #[inline]
    pub(crate) fn host_sleeps(&self) -> bool {
        self.half(area::RETURN_HOST_SLEEPS, Ordering::Relaxed) != 0
    }

    /// The futex word.
    pub(crate) fn futex(&self) -> &AtomicU32 {
        self.returns.futex(self.back + area::RETURN_WAKE)
    }

    /// Value of a completion word below `area::WORDS`.
    #[inline]
    pub(crate) fn value(&self, word: u32) -> u64 {
        self.word(area::RETURN_WORDS + u64::from(word) * area::WORD_BYTES + area::WORD_VALUE)
    }

    /// Time of a completion word below `area::WORDS`.
    pub(crate) fn time(&self, word: u32) -> u64 {
        self.word(area::RETURN_WORDS + u64::from(word) * area::WORD_BYTES + area::WORD_TIME)
    }

    fn slot(slot: u32) -> u64 {
        area::RETURN_REPLIES + u64::from(slot) * area::REPLY_BYTES
    }

    /// Number of the message that a reply slot below `area::REPLIES` answers.
    #[inline]
    pub(crate) fn ticket(&self, slot: u32) -> u64 {
        self.word(Self::slot(slot) + area::REPLY_TICKET)
    }

    /// Status and length of an answer.
    pub(crate) fn answer(&self, slot: u32) -> (u32, u32) {
        let slot = Self::slot(slot);
        (
            self.half(slot + area::REPLY_STATUS, Ordering::Relaxed),
            self.half(slot + area::REPLY_LEN, Ordering::Relaxed),
        )
    }

    /// Copies the first bytes of an answer; `data` is not longer than `area::REPLY_DATA_MAX`.
    pub(crate) fn answer_data(&self, slot: u32, data: &mut [u8]) {
        self.returned(Self::slot(slot) + area::REPLY_DATA, data);
    }

    /// Copies bytes of the return area, none of which lies beyond its end.
    pub(crate) fn returned(&self, offset: u64, data: &mut [u8]) {
        self.returns.get(self.back + offset, data);
    }

    /// Number of the message behind the newest late error, 0: none. A new number is a new error.
    #[inline]
    pub(crate) fn error_message(&self) -> u64 {
        self.word(area::RETURN_ERROR_MESSAGE)
    }

    /// Flags of the newest late error.
    #[inline]
    pub(crate) fn error_flags(&self) -> u32 {
        self.half(area::RETURN_ERROR_FLAGS, Ordering::Acquire)
    }

    /// The newest late error, whole. The host stores the number last; if it changes meanwhile, read again,
    /// but not for ever.
    pub(crate) fn error(&self) -> StoredError {
        let mut error = StoredError { code: 0, flags: 0, message: self.error_message() };
        for _ in 0..64 {
            error.code = self.half(area::RETURN_ERROR, Ordering::Acquire);
            error.flags = self.error_flags();
            let again = self.error_message();
            if again == error.message {
                break;
            }
            error.message = again;
        }
        error
    }

    /// Whether the head of the return area looks as one that the host has just cleared. The rest of it is
    /// left alone: to look at it would touch twenty pages that most processes never use.
    pub(crate) fn is_clear(&self) -> bool {
        let words = [area::RETURN_HEAD, area::RETURN_DONE, area::RETURN_ERROR, area::RETURN_ERROR_MESSAGE];
        words.iter().all(|&offset| self.word(offset) == 0) && self.ticket(0) == 0
    }
}
