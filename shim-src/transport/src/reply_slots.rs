//! Allocation of the reply slots of a channel.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use vgpu_wire::area::REPLIES;

use crate::mutex::lock;
use crate::session_error::SessionError;

const _: () = assert!(REPLIES == u32::BITS, "the free slots are the bits of a word");

/// Time that a caller waits for a free slot before it checks that the session still stands.
const CHECK_EVERY: Duration = Duration::from_millis(450);

/// The reply slots of a session.
#[derive(Debug)]
pub(crate) struct ReplySlots {
    /// Slots that are not in use, one bit each.
    free: Mutex<u32>,
    freed: Condvar,
}

impl ReplySlots {
    pub(crate) fn new() -> Self {
        Self { free: Mutex::new(u32::MAX), freed: Condvar::new() }
    }

    /// Takes a free slot. Waits while all are in use, until a call ends or the session does.
    ///
    /// # Errors
    /// Returns the error of `check`, which tells whether the session still stands.
    pub(crate) fn acquire(&self, check: impl Fn() -> Result<(), SessionError>) -> Result<u32, SessionError> {
        let mut free = lock(&self.free);
        while *free == 0 {
            let wait = self.freed.wait_timeout(free, CHECK_EVERY);
            free = wait.unwrap_or_else(PoisonError::into_inner).0;
            check()?;
        }
        let slot = free.trailing_zeros();
        *free &= !(1 << slot);
        Ok(slot)
    }

    /// Frees a slot. The host has replied and no longer writes to it.
    pub(crate) fn release(&self, slot: u32) {
        *lock(&self.free) |= 1 << slot;
        self.freed.notify_one();
    }

    /// Wakes all threads that wait for a slot, because the session is lost.
    pub(crate) fn wake_all(&self) {
        self.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_slot_is_given_once() {
        let slots = ReplySlots::new();
        let mut seen = 0u32;
        for _ in 0..REPLIES {
            seen |= 1 << slots.acquire(|| Ok(())).unwrap();
        }
        assert_eq!(seen, u32::MAX);
        assert_eq!(*lock(&slots.free), 0);
        slots.release(9);
        assert_eq!(lock(&slots.free).trailing_zeros(), 9);
    }
}
