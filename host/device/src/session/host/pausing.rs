//! A pause of the device, as a session sees it: its thread must not wait within a message.

use std::sync::atomic::Ordering;

use super::SessionHost;

impl SessionHost {
    /// Returns whether the device is being paused. Whoever waits in the session's thread stops waiting then:
    /// [`Session::execute`](crate::Session::execute) returns
    /// [`SessionError::Paused`](crate::SessionError::Paused).
    #[must_use]
    pub fn pausing(&self) -> bool {
        self.0.pausing.load(Ordering::Acquire)
    }

    /// Tells the session's thread to come to a boundary between two messages, wherever it waits.
    pub(crate) fn pause(&self) {
        self.0.pausing.store(true, Ordering::SeqCst);
        self.0.memory.interrupt();
        if let Some(remote) = self.remote() {
            remote.interrupt();
        }
    }

    /// Lets the session's thread wait again.
    pub(crate) fn resume(&self) {
        self.0.pausing.store(false, Ordering::SeqCst);
        // The thread may wait for the worker process to be described.
        if let Some(remote) = self.remote() {
            remote.interrupt();
        }
    }
}
