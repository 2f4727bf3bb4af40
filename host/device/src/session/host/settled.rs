//! How far the work of a session is known to be complete, for the arbiter of a GPU's time.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::session::host::SessionHost;

/// Called with the number of a message up to which all work is complete.
type Listener = Box<dyn Fn(u64) + Send + Sync>;

/// The newest completion that was asked for.
#[derive(Default)]
pub(super) struct Settled {
    number: AtomicU64,
    /// Time on the device's clock at which it was seen, in nanoseconds.
    at: AtomicU64,
    listener: OnceLock<Listener>,
}

impl fmt::Debug for Settled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settled").field("number", &self.number).finish_non_exhaustive()
    }
}

impl SessionHost {
    /// Records that the work of all messages up to `number` is complete. Any thread may call this. A worker
    /// process tells the device's process.
    pub fn set_settled(&self, number: u64) {
        let settled = &self.0.settled;
        settled.at.store(self.now(), Ordering::Relaxed);
        settled.number.fetch_max(number, Ordering::Release);
        match settled.listener.get() {
            Some(listener) => listener(number),
            None => self.0.published.settled(number),
        }
    }

    /// Returns the number up to which work is known to be complete, and when that was seen.
    pub(crate) fn settled(&self) -> (u64, u64) {
        let settled = &self.0.settled;
        let number = settled.number.load(Ordering::Acquire);
        (number, settled.at.load(Ordering::Relaxed))
    }

    /// Sets who is told of completions, for a session of this process. Only the first call has an effect.
    pub(crate) fn on_settled(&self, listener: Listener) {
        let _ = self.0.settled.listener.set(listener);
    }
}
