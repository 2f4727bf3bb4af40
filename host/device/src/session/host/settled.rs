//! Completions of a session's work, which the arbiter of a GPU's time asks for.

use super::SessionHost;
use crate::session::settled::SettledListener;

impl SessionHost {
    /// Records that the work of all messages up to `number` is complete. Any thread may call this. A worker
    /// process tells the device's process.
    pub fn report_complete(&self, number: u64) {
        self.0.settled.set(number, self.now());
        match self.0.settled.listener.get() {
            Some(listener) => listener(number),
            None => self.0.published.settled(number),
        }
    }

    /// Returns the number up to which work is known to be complete, and the time at which that was seen, in
    /// nanoseconds on the device's clock.
    pub(crate) fn settled(&self) -> (u64, u64) {
        self.0.settled.get()
    }

    /// Sets the receiver of completions, for a session of this process. Only the first call has an effect.
    pub(crate) fn on_settled(&self, listener: SettledListener) {
        let _ = self.0.settled.listener.set(listener);
    }
}
