//! The host's half of a channel's area, written in the guest: what a host of version 2 would store for this
//! process.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::Instant;

use vgpu_wire::{Header, MESSAGE_ALIGN, Mark, area};
use zerocopy::FromBytes;

use crate::mapping::Mapping;
use crate::sleep::wake;

/// One channel's area.
#[derive(Debug)]
pub(crate) struct Returns {
    window: Arc<Mapping>,
    base: u64,
    /// Bytes of the ring consumed.
    head: u64,
    /// Number of messages that were executed.
    done: u64,
    epoch: Instant,
}

impl Returns {
    /// The area at `base`, which is empty, of a session that starts.
    pub(crate) fn new(window: Arc<Mapping>, base: u64) -> Self {
        let returns = Self { window, base, head: 0, done: 0, epoch: Instant::now() };
        returns.window.store64(base + area::SUBMIT + area::SUBMIT_TAIL, 0, Ordering::Relaxed);
        // The thread that sends a message executes it: the doorbell is rung for each.
        returns.store32(area::RETURN_HOST_SLEEPS, 1);
        returns
    }

    fn store32(&self, offset: u64, value: u32) {
        self.window.store32(self.base + area::RETURN + offset, value, Ordering::Release);
    }

    fn store64(&self, offset: u64, value: u64) {
        self.window.store64(self.base + area::RETURN + offset, value, Ordering::Release);
    }

    /// Copies the next message out of the ring. Returns false if there is none, and `Err` if what lies there
    /// is not a message, because the session was closed.
    pub(crate) fn next(&mut self, message: &mut Vec<u8>) -> Result<bool, ()> {
        let tail = self.window.load64(self.base + area::SUBMIT + area::SUBMIT_TAIL, Ordering::Acquire);
        if tail == self.head {
            return Ok(false);
        }
        let there = tail.checked_sub(self.head).filter(|&there| there <= area::RING_BYTES).ok_or(())?;
        let at = self.head % area::RING_BYTES;
        let place = self.base + area::RING + at;
        let mut header = [0; size_of::<Header>()];
        self.window.get(place, &mut header);
        let bytes = Header::read_from_bytes(&header).map_or(0, |header| u64::from(header.bytes));
        let fits = bytes >= MESSAGE_ALIGN && bytes <= there && bytes <= area::RING_BYTES - at;
        if !fits {
            return Err(());
        }
        message.resize(bytes as usize, 0);
        self.window.get(place, message);
        self.head += bytes;
        Ok(true)
    }

    /// The number of the message that was taken last.
    pub(crate) fn number(&self) -> u64 {
        self.done + 1
    }

    /// Completes the message that was taken last.
    pub(crate) fn finish(&mut self) {
        self.done += 1;
        self.store64(area::RETURN_DONE, self.done);
        self.store64(area::RETURN_HEAD, self.head);
        self.wake();
    }

    /// Wakes threads that sleep.
    fn wake(&self) {
        fence(Ordering::SeqCst);
        if self.window.load32(self.base + area::SUBMIT + area::SUBMIT_SLEEPERS, Ordering::Relaxed) != 0 {
            let word = self.window.futex(self.base + area::RETURN + area::RETURN_WAKE);
            word.fetch_add(1, Ordering::Release);
            wake(word);
        }
    }

    /// Stores the value of a mark, whose work has completed.
    pub(crate) fn mark(&self, mark: Mark) {
        if mark.word == 0 || mark.word >= area::WORDS {
            return;
        }
        let word = area::RETURN_WORDS + u64::from(mark.word) * area::WORD_BYTES;
        let time = u64::try_from(self.epoch.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.store64(word + area::WORD_TIME, time);
        self.store64(word + area::WORD_VALUE, mark.value);
    }

    /// Answers the message that was taken last.
    pub(crate) fn reply(&self, slot: u32, status: u32, data: &[u8]) {
        if slot >= area::REPLIES || data.len() as u64 > area::REPLY_DATA_MAX {
            return;
        }
        let at = area::RETURN_REPLIES + u64::from(slot) * area::REPLY_BYTES;
        self.store32(at + area::REPLY_STATUS, status);
        self.store32(at + area::REPLY_LEN, data.len() as u32);
        self.window.put(self.base + area::RETURN + at + area::REPLY_DATA, data);
        self.store64(at + area::REPLY_TICKET, self.number());
    }

    /// Stores that a message failed.
    pub(crate) fn fail(&self, number: u64, code: u32, flags: u32) {
        self.store32(area::RETURN_ERROR, code);
        self.store32(area::RETURN_ERROR_FLAGS, flags);
        self.store64(area::RETURN_ERROR_MESSAGE, number);
    }

    /// The window in which spans have their offsets.
    pub(crate) fn window(&self) -> &Arc<Mapping> {
        &self.window
    }
}
