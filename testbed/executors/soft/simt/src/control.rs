//! How a launch is stopped from outside: a flag, a deadline and a budget of work.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Stops launches. It is looked at in the loops of kernels, at backward branches. Clones are the same control.
#[derive(Clone, Debug, Default)]
pub struct Control {
    shared: Arc<Shared>,
    deadline: Option<Instant>,
}

#[derive(Debug)]
struct Shared {
    stop: Arc<AtomicBool>,
    /// Warp-wide branches that may still be taken, all blocks together.
    budget: AtomicU64,
}

impl Default for Shared {
    fn default() -> Self {
        Self { stop: Arc::default(), budget: AtomicU64::new(u64::MAX) }
    }
}

/// What a look at the control says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    GoOn,
    Stop,
    Timeout,
}

impl Control {
    /// No limits.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Launches end with [`crate::Fault::Timeout`] when they are still in a loop this long from now.
    #[must_use]
    pub fn with_timeout(timeout: Duration) -> Self {
        Self { shared: Arc::default(), deadline: Instant::now().checked_add(timeout) }
    }

    /// Launches end with [`crate::Fault::Timeout`] when their warps have executed about this many instructions
    /// in loops, all blocks together.
    #[must_use]
    pub fn with_budget(instructions: u64) -> Self {
        let control = Self::default();
        control.shared.budget.store(instructions, Ordering::Relaxed);
        control
    }

    /// Launches end with [`crate::Fault::Stopped`] when `stop` is set, which may be somebody else's too, and with
    /// [`crate::Fault::Timeout`] when they are still in a loop `timeout` from now.
    #[must_use]
    pub fn watching(stop: Arc<AtomicBool>, timeout: Duration) -> Self {
        let shared = Shared { stop, ..Shared::default() };
        Self { shared: Arc::new(shared), deadline: Instant::now().checked_add(timeout) }
    }

    /// Ends the launches that run under this control, and all later ones, with [`crate::Fault::Stopped`].
    pub fn stop(&self) {
        self.shared.stop.store(true, Ordering::Relaxed);
    }

    /// Looks, after `spent` more instructions.
    pub(crate) fn poll(&self, spent: u64) -> Verdict {
        if self.shared.stop.load(Ordering::Relaxed) {
            return Verdict::Stop;
        }
        let budget = &self.shared.budget;
        let left = budget.load(Ordering::Relaxed);
        if left != u64::MAX {
            if left < spent {
                return Verdict::Timeout;
            }
            // Threads that race may give each other some instructions back; the budget is approximate.
            budget.store(left - spent, Ordering::Relaxed);
        }
        if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Verdict::Timeout;
        }
        Verdict::GoOn
    }
}
