//! The gate that an operator shuts to hold sessions: `hold` and `release` of the control socket.

use std::sync::atomic::{AtomicBool, Ordering};

/// Whether sessions are held. A held session takes messages from its ring but does not carry them out.
#[derive(Debug, Default)]
pub struct Gate(AtomicBool);

impl Gate {
    /// Shuts the gate, or opens it. Whoever opens it wakes the threads that wait.
    pub fn set(&self, held: bool) {
        self.0.store(held, Ordering::SeqCst);
    }

    /// Whether the gate is shut.
    #[inline]
    #[must_use]
    pub fn held(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}
