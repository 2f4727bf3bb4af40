//! Stops launches from outside, by a flag, a deadline or a budget of instructions, and charges their memory.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use vgpu_ptx::{Halt, Interrupt};

/// Handle for stopping launches. A launch polls it between blocks, at backward branches and in long straight
/// lines of code. Clones share their state.
#[derive(Clone, Debug)]
pub struct Control {
    interrupt: Interrupt,
    /// Number of warp-wide instructions that all blocks together may still execute, approximately.
    budget: Arc<AtomicU64>,
    ledger: Option<Arc<dyn Ledger>>,
    /// Whether turns are as short as possible, for tests.
    short_turns: bool,
}

/// Accounts for the host memory of launches: registers, local memory and shared memory of the running blocks.
pub trait Ledger: Debug + Send + Sync {
    /// Charges `bytes` until the launch has ended. Returns false if the limit is reached; the launch then
    /// runs on fewer threads, or ends.
    fn charge(&self, bytes: u64) -> bool;
}

impl Default for Control {
    fn default() -> Self {
        Self::with_interrupt(Interrupt::default())
    }
}

impl Control {
    /// Returns a control without limits.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns a control that ends launches with [`crate::Fault::Timeout`] after about this many warp-wide
    /// instructions. Instructions in loops and in long straight lines count, and each block counts as one
    /// more.
    #[must_use]
    pub fn with_budget(instructions: u64) -> Self {
        Self { budget: Arc::new(AtomicU64::new(instructions)), ..Self::default() }
    }

    /// Returns a control that ends launches with [`crate::Fault::Stopped`] once the interrupt's flag is set,
    /// and with [`crate::Fault::Timeout`] after its deadline.
    #[must_use]
    pub fn with_interrupt(interrupt: Interrupt) -> Self {
        Self { interrupt, budget: Arc::new(AtomicU64::new(u64::MAX)), ledger: None, short_turns: false }
    }

    /// Ends the launches under this control, and all later ones, with [`crate::Fault::Stopped`].
    pub fn stop(&self) {
        self.interrupt.stop();
    }

    /// Returns whether launches are stopped by [`Control::stop`] or the interrupt's flag. The check is one
    /// load.
    #[inline]
    pub(crate) fn stopped(&self) -> bool {
        self.interrupt.stopped()
    }

    /// Charges the memory of launches to `ledger`.
    #[must_use]
    pub fn with_ledger(self, ledger: Arc<dyn Ledger>) -> Self {
        Self { ledger: Some(ledger), ..self }
    }

    /// Ends the turn of a warp in each iteration of a loop, so that its lanes part wherever they may. Results
    /// are the same, unless a kernel depends on the order in which its threads run. This is for tests.
    #[must_use]
    pub fn with_short_turns(self) -> Self {
        Self { short_turns: true, ..self }
    }

    /// Returns whether turns are as short as possible.
    #[inline]
    pub(crate) const fn has_short_turns(&self) -> bool {
        self.short_turns
    }

    /// Charges `bytes` more to the ledger. Returns whether it permits them; without a ledger it always does.
    pub(crate) fn charge(&self, bytes: u64) -> bool {
        self.ledger.as_ref().is_none_or(|ledger| ledger.charge(bytes))
    }

    /// Subtracts `spent` instructions from the budget and checks the flag, the deadline and the budget.
    pub(crate) fn poll(&self, spent: u64) -> Result<(), Halt> {
        let left = self.budget.load(Ordering::Relaxed);
        if left != u64::MAX {
            if left < spent {
                return Err(Halt::TimedOut);
            }
            // Threads that race may restore some of each other's instructions: the budget is approximate.
            self.budget.store(left - spent, Ordering::Relaxed);
        }
        self.interrupt.check()
    }
}
