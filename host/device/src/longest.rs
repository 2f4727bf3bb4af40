//! The longest times for which guests waited for a register, for the status report.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Longest durations so far, in microseconds.
#[derive(Debug, Default)]
pub struct Longest {
    access: AtomicU64,
    attach: AtomicU64,
}

/// Measures an access. It ends when this is dropped.
#[derive(Debug)]
pub struct TimedAccess<'a> {
    longest: &'a AtomicU64,
    start: Instant,
}

impl Drop for TimedAccess<'_> {
    fn drop(&mut self) {
        let took = u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX);
        // Accesses are frequent, and one that is longer than all before is rare.
        if took > self.longest.load(Ordering::Relaxed) {
            self.longest.fetch_max(took, Ordering::Relaxed);
        }
    }
}

impl Longest {
    /// Starts to measure a register access.
    pub fn access(&self) -> TimedAccess<'_> {
        TimedAccess { longest: &self.access, start: Instant::now() }
    }

    /// Starts to measure an attach, which is a register access too.
    pub fn attach(&self) -> TimedAccess<'_> {
        TimedAccess { longest: &self.attach, start: Instant::now() }
    }

    /// Returns the duration of the longest access, in microseconds.
    #[must_use]
    pub fn access_us(&self) -> u64 {
        self.access.load(Ordering::Relaxed)
    }

    /// Returns the duration of the longest attach, in microseconds.
    #[must_use]
    pub fn attach_us(&self) -> u64 {
        self.attach.load(Ordering::Relaxed)
    }
}
