//! The gate that an operator shuts to hold sessions: `hold` and `release` of the control socket.

use std::sync::atomic::{AtomicBool, Ordering};

/// Whether sessions are held. A held session reads messages from its ring but does not carry them out.
#[derive(Debug, Default)]
pub struct Gate(AtomicBool);

impl Gate {
    /// Shuts or opens the gate. The caller that opens it wakes the waiting threads.
    pub fn set(&self, held: bool) {
        self.0.store(held, Ordering::SeqCst);
    }

    /// Returns whether the gate is shut.
    #[inline]
    #[must_use]
    pub fn held(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}
