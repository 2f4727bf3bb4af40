//! Ends sessions: one at an operator's request, and all of them when the device is reset or shut down.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use vgpu_wire::registers::channel::STATE_ATTACHED;

use super::Device;

/// Time that a reset, or the end of the device, waits for sessions to end. A session whose executor is in the
/// middle of work that cannot be interrupted ends later, and its channel stays in
/// [`STATE_ENDING`](vgpu_wire::registers::channel::STATE_ENDING) until then.
const ENDING_MOST: Duration = Duration::from_millis(300);

impl Device {
    /// Tells all sessions to end, and waits for none of them.
    pub fn end_sessions(&self) {
        for channel in &self.channels {
            channel.end(&channel.control());
        }
    }

    /// Ends the session of a number, because an operator asks for it, and waits until it has ended, but not
    /// beyond `deadline`. Returns whether it has, or `None` if there is no such session.
    pub fn end_session(&self, number: u32, deadline: Instant) -> Option<bool> {
        let channel = self.channels.iter().find(|channel| {
            let control = channel.control();
            let found = number != 0 && channel.session() == number;
            if found {
                tracing::warn!(device = %self.label, session = number, "an operator ends the session");
                let attached = channel.state() == STATE_ATTACHED;
                channel.end(&control);
                if attached {
                    self.ended.count_end();
                }
            }
            found
        })?;
        Some(channel.wait_until_free(deadline))
    }

    /// Waits until all sessions have ended, but not beyond `deadline`. Returns false if some executor is
    /// still in the middle of work.
    pub fn wait_for_sessions(&self, deadline: Instant) -> bool {
        self.channels.iter().all(|channel| channel.wait_until_free(deadline))
    }

    /// Ends all sessions because the bus resets the device, or because the machine is gone. A session whose
    /// executor does not stop at once may outlast the reset. Its channel accepts no attach until it has
    /// ended.
    pub fn reset(&self) {
        self.end_sessions();
        for channel in &self.channels {
            channel.forget_guest();
        }
        if !self.wait_for_sessions(Instant::now() + ENDING_MOST) {
            self.warn_of_sessions();
        }
    }

    /// Ends all sessions for good. As with [`Device::reset`], a session that does not stop may outlast this
    /// call.
    pub fn shutdown(&self) {
        self.shutdown_by(Instant::now() + ENDING_MOST);
    }

    /// Ends all sessions for good, with a deadline that several devices share.
    pub(crate) fn shutdown_by(&self, deadline: Instant) {
        if self.over.swap(true, Ordering::Relaxed) {
            return;
        }
        self.end_sessions();
        if !self.wait_for_sessions(deadline) {
            self.warn_of_sessions();
        }
        self.unpublish();
    }

    fn warn_of_sessions(&self) {
        let left: Vec<u32> =
            self.channels.iter().map(|channel| channel.session()).filter(|&number| number != 0).collect();
        tracing::warn!(device = %self.label, sessions = ?left, "sessions are still ending: the executor is in the middle of work");
    }
}
