//! How a launch is stopped from outside: by a flag, a deadline or a budget of work; and who pays for its
//! memory.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use vgpu_ptx::{Halt, Interrupt};

/// Stops launches. Launches poll it between blocks, at backward branches and in long straight lines. Clones
/// are the same control.
#[derive(Clone, Debug)]
pub struct Control {
    interrupt: Interrupt,
    /// Number of warp-wide instructions that all blocks together may still execute.
    budget: Arc<AtomicU64>,
    ledger: Option<Arc<dyn Ledger>>,
}

/// Pays for the memory that launches take of the host: registers, local and shared memory of the blocks that
/// are running.
pub trait Ledger: Debug + Send + Sync {
    /// Takes `bytes` more until the launch has ended. Returns false if that is too much: the launch then goes
    /// without, or ends.
    fn charge(&self, bytes: u64) -> bool;
}

impl Default for Control {
    fn default() -> Self {
        Self::with_interrupt(Interrupt::default())
    }
}

impl Control {
    /// A control without limits.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Ends launches with [`crate::Fault::Timeout`] when their warps together have executed about this many
    /// instructions of loops and long straight lines, each block counting as one more.
    #[must_use]
    pub fn with_budget(instructions: u64) -> Self {
        Self { budget: Arc::new(AtomicU64::new(instructions)), ..Self::default() }
    }

    /// Ends launches with [`crate::Fault::Stopped`] when the interrupt's flag is set, and with
    /// [`crate::Fault::Timeout`] after its deadline.
    #[must_use]
    pub fn with_interrupt(interrupt: Interrupt) -> Self {
        Self { interrupt, budget: Arc::new(AtomicU64::new(u64::MAX)), ledger: None }
    }

    /// Ends the launches that run under this control, and all later ones, with [`crate::Fault::Stopped`].
    pub fn stop(&self) {
        self.interrupt.stop();
    }

    /// Whether launches are stopped. This is one load.
    #[inline]
    pub(crate) fn stopped(&self) -> bool {
        self.interrupt.stopped()
    }

    /// Makes `ledger` pay for the memory of launches.
    #[must_use]
    pub fn with_ledger(self, ledger: Arc<dyn Ledger>) -> Self {
        Self { ledger: Some(ledger), ..self }
    }

    /// Pays for `bytes` more. Returns whether they may be had.
    pub(crate) fn charge(&self, bytes: u64) -> bool {
        self.ledger.as_ref().is_none_or(|ledger| ledger.charge(bytes))
    }

    /// Checks whether launches must end, after `spent` more instructions.
    pub(crate) fn poll(&self, spent: u64) -> Result<(), Halt> {
        let left = self.budget.load(Ordering::Relaxed);
        if left != u64::MAX {
            if left < spent {
                return Err(Halt::TimedOut);
            }
            // Threads that race may give each other some instructions back: the budget is approximate.
            self.budget.store(left - spent, Ordering::Relaxed);
        }
        self.interrupt.check()
    }
}
