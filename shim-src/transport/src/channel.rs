//! A channel's area as the guest uses it: accessors for the words at the offsets of `vgpu_wire::area`.
//!
//! The guest stores to the submit half and loads nothing from it but its owner; it loads from the return half
//! and never stores to it. The two may be in different memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use vgpu_wire::area;

use crate::mapping::Mapping;
use crate::owner::Owner;

/// Shared memory of one channel.
#[derive(Debug)]
pub(crate) struct Channel {
    submit: Arc<Mapping>,
    /// Offset of the area in `submit`.
    base: u64,
    returns: Arc<Mapping>,
    /// Offset of the return area in `returns`.
    back: u64,
}

/// The newest late error, as the host stored it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StoredError {
    pub(crate) code: u32,
    pub(crate) flags: u32,
    pub(crate) message: u64,
}

impl Channel {
    /// Creates the channel whose area starts at `base` of the window, and whose return area at `back` of
    /// `returns`.
    pub(crate) fn new(submit: Arc<Mapping>, base: u64, returns: Arc<Mapping>, back: u64) -> Self {
        Self { submit, base, returns, back }
    }

    /// Replaces the return area by private memory.
    pub(crate) fn make_private(&self) -> std::io::Result<()> {
        self.returns.make_private()
    }

    /// Copies memory into the ring.
    ///
    /// # Safety
    /// `source` is readable for `bytes`, and not part of the ring.
    #[inline]
    pub(crate) unsafe fn put_raw(&self, at: u64, source: *const u8, bytes: usize) {
        // SAFETY: as the caller promises.
        unsafe { self.submit.copy_in(self.base + area::RING + at, source, bytes) };
    }

    /// Copies private bytes into the ring.
    #[inline]
    pub(crate) fn put(&self, at: u64, source: &[u8]) {
        self.submit.put(self.base + area::RING + at, source);
    }

    /// Publishes the messages in the ring before `tail`.
    #[inline]
    pub(crate) fn publish(&self, tail: u64) {
        self.submit.order_stores();
        self.submit.store64(self.base + area::SUBMIT + area::SUBMIT_TAIL, tail, Ordering::Release);
    }

    /// Stores the number of threads that sleep, for the host.
    pub(crate) fn set_sleepers(&self, sleepers: u32) {
        self.submit.store32(self.base + area::SUBMIT + area::SUBMIT_SLEEPERS, sleepers, Ordering::Release);
    }

    /// Stores the number of the newest hold that was released, for the GPU.
    pub(crate) fn set_released(&self, hold: u32) {
        self.submit.order_stores();
        self.submit.store32(self.base + area::SUBMIT + area::SUBMIT_RELEASED, hold, Ordering::Release);
    }

    /// Stores the identity of the channel's owner. The process id is stored last, so that a process which
    /// reads it also reads the other fields.
    pub(crate) fn set_owner(&self, owner: &Owner) {
        let page = self.base + area::SUBMIT;
        self.submit.store64(page + area::SUBMIT_PROGRAM, owner.program, Ordering::Relaxed);
        self.submit.store64(page + area::SUBMIT_STARTED, owner.started, Ordering::Relaxed);
        self.submit.store32(page + area::SUBMIT_NAMESPACE, owner.namespace, Ordering::Relaxed);
        self.submit.order_stores();
        self.submit.store32(page + area::SUBMIT_PROCESS, owner.process, Ordering::Release);
        self.submit.order_stores();
    }

    /// Removes this process as the owner, unless another process has become the owner.
    pub(crate) fn clear_owner(&self) {
        let place = self.base + area::SUBMIT + area::SUBMIT_PROCESS;
        if self.submit.load32(place, Ordering::Relaxed) == std::process::id() {
            self.submit.store32(place, 0, Ordering::Release);
            self.submit.order_stores();
        }
    }

    /// Returns a 64-bit field of the return area.
    #[inline]
    pub(crate) fn word(&self, offset: u64) -> u64 {
        self.returns.load64(self.back + offset, Ordering::Acquire)
    }

    /// Returns a 32-bit field of the return area.
    #[inline]
    pub(crate) fn half(&self, offset: u64, order: Ordering) -> u32 {
        self.returns.load32(self.back + offset, order)
    }

    /// Returns the number of bytes of the ring that the host has consumed.
    #[inline]
    pub(crate) fn head(&self) -> u64 {
        self.word(area::RETURN_HEAD)
    }

    /// Returns the number of messages that the host's executor has taken.
    pub(crate) fn done(&self) -> u64 {
        self.word(area::RETURN_DONE)
    }

    /// Returns whether the host sleeps until the doorbell rings.
    #[inline]
    pub(crate) fn host_sleeps(&self) -> bool {
        self.half(area::RETURN_HOST_SLEEPS, Ordering::Relaxed) != 0
    }

    /// Returns the futex word on which threads sleep.
    pub(crate) fn futex(&self) -> &AtomicU32 {
        self.returns.futex(self.back + area::RETURN_WAKE)
    }

    /// Returns the value of a completion word with an index below `area::WORDS`.
    #[inline]
    pub(crate) fn value(&self, word: u32) -> u64 {
        self.word(area::RETURN_WORDS + u64::from(word) * area::WORD_BYTES + area::WORD_VALUE)
    }

    /// Returns the time of a completion word with an index below `area::WORDS`.
    pub(crate) fn time(&self, word: u32) -> u64 {
        self.word(area::RETURN_WORDS + u64::from(word) * area::WORD_BYTES + area::WORD_TIME)
    }

    fn slot(slot: u32) -> u64 {
        area::RETURN_REPLIES + u64::from(slot) * area::REPLY_BYTES
    }

    /// Returns the number of the message that a reply slot below `area::REPLIES` answers.
    #[inline]
    pub(crate) fn ticket(&self, slot: u32) -> u64 {
        self.word(Self::slot(slot) + area::REPLY_TICKET)
    }

    /// Returns status and length of a reply.
    pub(crate) fn answer(&self, slot: u32) -> (u32, u32) {
        let slot = Self::slot(slot);
        (
            self.half(slot + area::REPLY_STATUS, Ordering::Relaxed),
            self.half(slot + area::REPLY_LEN, Ordering::Relaxed),
        )
    }

    /// Copies the first bytes of a reply. `data` is not longer than `area::REPLY_DATA_MAX`.
    pub(crate) fn answer_data(&self, slot: u32, data: &mut [u8]) {
        self.returned(Self::slot(slot) + area::REPLY_DATA, data);
    }

    /// Copies bytes of the return area, all of which are within it.
    pub(crate) fn returned(&self, offset: u64, data: &mut [u8]) {
        self.returns.get(self.back + offset, data);
    }

    /// Returns the number of the message that caused the newest late error, or 0 if there is none. A new
    /// number is a new error.
    #[inline]
    pub(crate) fn error_message(&self) -> u64 {
        self.word(area::RETURN_ERROR_MESSAGE)
    }

    /// Returns the flags of the newest late error.
    #[inline]
    pub(crate) fn error_flags(&self) -> u32 {
        self.half(area::RETURN_ERROR_FLAGS, Ordering::Acquire)
    }

    /// Returns the newest late error. The host stores the number last; if it changes meanwhile, the error is
    /// read again, a limited number of times.
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

    /// Returns whether the start of the return area looks like one that the host has just cleared. The rest
    /// is not checked, because that would touch twenty pages that most processes never use.
    pub(crate) fn is_clear(&self) -> bool {
        let words = [area::RETURN_HEAD, area::RETURN_DONE, area::RETURN_ERROR, area::RETURN_ERROR_MESSAGE];
        words.iter().all(|&offset| self.word(offset) == 0) && self.ticket(0) == 0
    }
}
