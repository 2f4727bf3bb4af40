//! How a launch is stopped from outside: a flag, a deadline and a budget of work. And who pays for its memory.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use vgpu_ptx::{Halt, Interrupt};

/// Stops launches. It is looked at between blocks, at backward branches and in long straight lines. Clones are the same control.
#[derive(Clone, Debug)]
pub struct Control {
    interrupt: Interrupt,
    /// Warp-wide instructions that may still be executed, all blocks together.
    budget: Arc<AtomicU64>,
    ledger: Option<Arc<dyn Ledger>>,
}

/// Who pays for the memory that launches take of the host: registers, local and shared memory of the blocks that are under way.
pub trait Ledger: Debug + Send + Sync {
    /// Takes `bytes` more until the launch has ended; false: there may not be so many, and the launch goes without, or ends.
    fn take(&self, bytes: u64) -> bool;
}

impl Default for Control {
    fn default() -> Self {
        Self::under(Interrupt::default())
    }
}

impl Control {
    /// No limits.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Launches end with [`crate::Fault::Timeout`] when their warps have executed about this many instructions, of
    /// loops and of long straight lines, and blocks, all blocks together.
    #[must_use]
    pub fn with_budget(instructions: u64) -> Self {
        Self { budget: Arc::new(AtomicU64::new(instructions)), ..Self::default() }
    }

    /// Launches end with [`crate::Fault::Stopped`] when the interrupt's flag is set, and with
    /// [`crate::Fault::Timeout`] after its deadline.
    #[must_use]
    pub fn under(interrupt: Interrupt) -> Self {
        Self { interrupt, budget: Arc::new(AtomicU64::new(u64::MAX)), ledger: None }
    }

    /// Ends the launches that run under this control, and all later ones, with [`crate::Fault::Stopped`].
    pub fn stop(&self) {
        self.interrupt.stop();
    }

    /// Whether launches are stopped: one load.
    #[inline]
    pub(crate) fn stopped(&self) -> bool {
        self.interrupt.stopped()
    }

    /// The memory of launches is `ledger`'s to pay.
    #[must_use]
    pub fn paid_by(self, ledger: Arc<dyn Ledger>) -> Self {
        Self { ledger: Some(ledger), ..self }
    }

    /// Whether there may be `bytes` more.
    pub(crate) fn pay(&self, bytes: u64) -> bool {
        self.ledger.as_ref().is_none_or(|ledger| ledger.take(bytes))
    }

    /// Looks, after `spent` more instructions.
    pub(crate) fn poll(&self, spent: u64) -> Result<(), Halt> {
        let left = self.budget.load(Ordering::Relaxed);
        if left != u64::MAX {
            if left < spent {
                return Err(Halt::TimedOut);
            }
            // Threads that race may give each other some instructions back; the budget is approximate.
            self.budget.store(left - spent, Ordering::Relaxed);
        }
        self.interrupt.check()
    }
}
