//! Holds of a device's streams: which host functions have not returned yet.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, PoisonError};

use crate::sync::Mutex;

/// Host functions of a device's streams. They are called in the order of their holds' numbers.
#[derive(Debug, Default)]
pub struct Holds {
    /// Number of functions that have not returned yet.
    open: AtomicU32,
    /// Number of the hold whose function returned last.
    released: Mutex<u32>,
    news: Condvar,
}

impl Holds {
    /// Returns whether a stream is held.
    #[inline]
    pub fn any(&self) -> bool {
        self.open.load(Ordering::Acquire) != 0
    }

    /// Counts a function that is about to be submitted.
    pub fn begin(&self) {
        self.open.fetch_add(1, Ordering::AcqRel);
    }

    /// Counts a function that could not be submitted.
    pub fn cancel(&self) {
        self.open.fetch_sub(1, Ordering::AcqRel);
    }

    /// Records that the function of a hold has returned.
    pub fn end(&self, hold: u32) {
        *self.released.lock() = hold;
        self.open.fetch_sub(1, Ordering::AcqRel);
        self.news.notify_all();
    }

    /// Returns the number of the hold whose function returned last.
    pub fn released(&self) -> u32 {
        *self.released.lock()
    }

    /// Waits until the function of a hold has returned.
    pub fn wait(&self, hold: u32) {
        let mut released = self.released.lock();
        while *released < hold {
            released = self.news.wait(released).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
