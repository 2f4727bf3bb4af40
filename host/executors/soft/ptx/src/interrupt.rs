//! How work that takes long is told to end: the session is over, or its time is. One definition for parsing,
//! lowering, kernels, products and copies.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Why work must end early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Halt {
    /// Nobody wants the result any more.
    #[error("stopped: the session is being ended")]
    Stopped,
    /// It took longer than it may.
    #[error("it took too long")]
    TimedOut,
}

/// A flag that somebody else may set, and a deadline if there is one. Clones look at the same flag.
#[derive(Clone, Debug, Default)]
pub struct Interrupt {
    stop: Arc<AtomicBool>,
    deadline: Option<Instant>,
}

impl Interrupt {
    /// Work ends when `stop` is set, and `limit` from now if that is given.
    #[must_use]
    pub fn new(stop: Arc<AtomicBool>, limit: Option<Duration>) -> Self {
        // A limit beyond what the clock can say is none.
        Self { stop, deadline: limit.and_then(|limit| Instant::now().checked_add(limit)) }
    }

    /// The same flag with a deadline `limit` from now, if there is one.
    #[must_use]
    pub fn limited(&self, limit: Option<Duration>) -> Self {
        Self::new(Arc::clone(&self.stop), limit)
    }

    /// Ends the work of all clones.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Whether the flag is set: one load, for places that are passed often.
    #[must_use]
    #[inline]
    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Looks at the flag, and at the clock if there is a deadline.
    ///
    /// # Errors
    /// Why the work must end.
    #[inline]
    pub fn check(&self) -> Result<(), Halt> {
        if self.stopped() {
            return Err(Halt::Stopped);
        }
        match self.deadline {
            Some(deadline) if Instant::now() >= deadline => Err(Halt::TimedOut),
            _ => Ok(()),
        }
    }
}
