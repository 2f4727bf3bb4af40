//! The host's half of a channel's area, to which this process writes in place of a host of version 2.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::Instant;

use vgpu_transport::parts::{Mapping, wake};
use vgpu_wire::{Header, MESSAGE_ALIGN, Mark, area};
use zerocopy::FromBytes;

/// The area of one channel, in this process's own window.
#[derive(Debug)]
pub(crate) struct ReturnArea {
    window: Arc<Mapping>,
    /// Offset of the area in the window.
    base: u64,
    /// Number of bytes of the ring that were consumed since the session started.
    head: u64,
    /// Number of messages executed.
    done: u64,
    /// Start of the clock that marks are stamped with.
    epoch: Instant,
}

impl ReturnArea {
    /// Initializes the area at `base`, which is empty.
    pub(crate) fn new(window: Arc<Mapping>, base: u64) -> Self {
        let returns = Self { window, base, head: 0, done: 0, epoch: Instant::now() };
        returns.window.store64(base + area::SUBMIT + area::SUBMIT_TAIL, 0, Ordering::Relaxed);
        // Each message must ring the doorbell, because the thread that sends a message executes it.
        returns.store32(area::RETURN_HOST_SLEEPS, 1);
        returns
    }

    fn store32(&self, offset: u64, value: u32) {
        self.window.store32(self.base + area::RETURN + offset, value, Ordering::Release);
    }

    fn store64(&self, offset: u64, value: u64) {
        self.window.store64(self.base + area::RETURN + offset, value, Ordering::Release);
    }

    /// Copies the next message out of the ring. Returns false if the ring is empty, and an error if it does
    /// not hold a whole message, because another thread has closed the session.
    pub(crate) fn next(&mut self, message: &mut Vec<u8>) -> Result<bool, ()> {
        let tail = self.window.load64(self.base + area::SUBMIT + area::SUBMIT_TAIL, Ordering::Acquire);
        if tail == self.head {
            return Ok(false);
        }
        let queued = tail.checked_sub(self.head).filter(|&queued| queued <= area::RING_BYTES).ok_or(())?;
        let at = self.head % area::RING_BYTES;
        let offset = self.base + area::RING + at;
        let mut header = [0; size_of::<Header>()];
        self.window.get(offset, &mut header);
        let bytes = Header::read_from_bytes(&header).map_or(0, |header| u64::from(header.bytes));
        if bytes < MESSAGE_ALIGN || bytes > queued || bytes > area::RING_BYTES - at {
            return Err(());
        }
        message.resize(bytes as usize, 0);
        self.window.get(offset, message);
        self.head += bytes;
        Ok(true)
    }

    /// Returns the number of the message that was read last.
    pub(crate) fn number(&self) -> u64 {
        self.done + 1
    }

    /// Publishes that the message that was read last has completed.
    pub(crate) fn finish(&mut self) {
        self.done += 1;
        self.store64(area::RETURN_DONE, self.done);
        self.store64(area::RETURN_HEAD, self.head);
        self.wake();
    }

    /// Wakes the threads of this session that sleep.
    fn wake(&self) {
        fence(Ordering::SeqCst);
        if self.window.load32(self.base + area::SUBMIT + area::SUBMIT_SLEEPERS, Ordering::Relaxed) != 0 {
            let word = self.window.futex(self.base + area::RETURN + area::RETURN_WAKE);
            word.fetch_add(1, Ordering::Release);
            wake(word);
        }
    }

    /// Stores the value and the time of a mark. An invalid word is ignored.
    pub(crate) fn mark(&self, mark: Mark) {
        if mark.word == 0 || mark.word >= area::WORDS {
            return;
        }
        let word = area::RETURN_WORDS + u64::from(mark.word) * area::WORD_BYTES;
        let time = u64::try_from(self.epoch.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.store64(word + area::WORD_TIME, time);
        self.store64(word + area::WORD_VALUE, mark.value);
    }

    /// Stores the reply to the message that was read last. An invalid slot is ignored.
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

    /// Stores the late error of a message.
    pub(crate) fn fail(&self, number: u64, code: u32, flags: u32) {
        self.store32(area::RETURN_ERROR, code);
        self.store32(area::RETURN_ERROR_FLAGS, flags);
        self.store64(area::RETURN_ERROR_MESSAGE, number);
    }

    /// Returns the window to which the offsets of spans refer.
    pub(crate) fn window(&self) -> &Arc<Mapping> {
        &self.window
    }
}
