//! Interruption of long work, because its session ends or its time is over. Parsing, lowering, kernels,
//! products and copies share this definition.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Reason for which work ends early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Halt {
    /// The session is ending, and nobody uses the result.
    #[error("stopped: the session is being ended")]
    Stopped,
    /// The deadline has passed.
    #[error("it took too long")]
    TimedOut,
}

/// Flag that another thread may set, with an optional deadline. Clones share the flag.
#[derive(Clone, Debug, Default)]
pub struct Interrupt {
    stop: Arc<AtomicBool>,
    deadline: Option<Instant>,
}

impl Interrupt {
    /// Makes an interrupt that ends work when `stop` is set, or after `limit` if there is a limit.
    #[must_use]
    pub fn new(stop: Arc<AtomicBool>, limit: Option<Duration>) -> Self {
        // A deadline that the clock cannot represent never passes.
        Self { stop, deadline: limit.and_then(|limit| Instant::now().checked_add(limit)) }
    }

    /// Returns an interrupt with the same flag, and a deadline `limit` from now if there is a limit.
    #[must_use]
    pub fn limited(&self, limit: Option<Duration>) -> Self {
        Self::new(Arc::clone(&self.stop), limit)
    }

    /// Sets the flag, which ends the work of all clones.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Returns whether the flag is set. It costs one load, and suits frequent checks.
    #[must_use]
    #[inline]
    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Polls the flag, and the clock if there is a deadline.
    ///
    /// # Errors
    /// The reason for which the work must end.
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
