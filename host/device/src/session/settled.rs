//! How far the work of a session is known to be complete, for the arbiter of a GPU's time.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Called with the number of a message up to which all work is complete.
pub(crate) type SettledListener = Box<dyn Fn(u64) + Send + Sync>;

/// Number of a message of a session up to which all work is known to be complete.
#[derive(Default)]
pub(crate) struct Settled {
    number: AtomicU64,
    /// Time on the device's clock at which it was seen, in nanoseconds.
    at: AtomicU64,
    /// Receiver of completions, for a session of this process.
    pub(crate) listener: OnceLock<SettledListener>,
}

impl fmt::Debug for Settled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settled").field("number", &self.number).finish_non_exhaustive()
    }
}

impl Settled {
    /// Records that the work of all messages up to `number` is complete, as was seen at the time `at`.
    pub(crate) fn set(&self, number: u64, at: u64) {
        self.at.store(at, Ordering::Relaxed);
        self.number.fetch_max(number, Ordering::Release);
    }

    /// Returns the number up to which work is known to be complete, and the time at which that was seen, in
    /// nanoseconds on the device's clock.
    pub(crate) fn get(&self) -> (u64, u64) {
        let number = self.number.load(Ordering::Acquire);
        (number, self.at.load(Ordering::Relaxed))
    }
}
