//! The gate that messages of all sessions pass. It has two holders: an operator, who holds sessions by `hold`
//! and `release` of the control socket, and an arbiter, who shares a GPU's time among the VMs of a host. A pause
//! of the device stops sessions between two messages, whoever holds the gate.
//!
//! While neither holds it, a message pays one load of [`Gate::is_open`]. While the arbiter meters it,
//! sessions ask their executors to tell when the work so far is complete, and the arbiter is told whether the
//! device has work and whether some is in flight ([`GateReport`]). While it is shut, messages wait.

mod admission;
mod meter;
mod presence;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::thread::Thread;
use std::time::Instant;

pub(crate) use admission::STALL;
pub(crate) use meter::{InFlightMeter, Throttle};
use presence::SessionStates;
pub(crate) use presence::ThreadState;

use crate::sync::lock;

/// The operator holds sessions.
const HELD: u32 = 1;
/// The arbiter is told of work, and work in flight is bounded.
const METERED: u32 = 2;
/// The arbiter holds sessions.
const SHUT: u32 = 4;
/// The device is paused, so that its state can be saved.
const PAUSED: u32 = 8;

/// How the arbiter wants messages to pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GateMode {
    /// They pass, and nobody is told.
    #[default]
    Open,
    /// They pass. Work in flight is bounded, and the arbiter is told when there is work.
    Metered,
    /// They wait, and the arbiter is told when the work in flight is complete.
    Shut,
}

/// State of the device's work, as the arbiter is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GateReport {
    /// Number of the newest order of the arbiter, which all sessions follow.
    pub turn: u32,
    /// Whether messages are being carried out, or wait at the gate. While messages pass, it also is true
    /// while work is in flight.
    pub work: bool,
    /// Whether work may be incomplete.
    pub in_flight: bool,
}

/// Receives reports. It is called for each change, one call at a time, and must not wait.
pub type GateListener = Box<dyn Fn(GateReport) + Send + Sync>;

/// The gate of one device.
#[derive(Debug, Default)]
pub struct Gate {
    /// [`HELD`], [`METERED`], [`SHUT`] and [`PAUSED`], or 0 while messages pass freely.
    state: AtomicU32,
    /// Number of times that the arbiter has begun to meter, or the device was paused. Sessions that wait for
    /// messages then look at the gate.
    calls: AtomicU32,
    presences: Mutex<SessionStates>,
}

impl Gate {
    /// Shuts or opens the gate for the operator. The caller that opens it wakes the waiting threads.
    pub fn set(&self, held: bool) {
        if held {
            self.state.fetch_or(HELD, Ordering::SeqCst);
        } else {
            self.state.fetch_and(!HELD, Ordering::SeqCst);
        }
    }

    /// Returns whether the operator holds sessions.
    #[inline]
    #[must_use]
    pub fn held(&self) -> bool {
        self.state.load(Ordering::Acquire) & HELD != 0
    }

    /// Returns whether messages pass freely.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.state.load(Ordering::Acquire) == 0
    }

    /// Returns how the arbiter wants messages to pass.
    pub(crate) fn passage(&self) -> GateMode {
        match self.state.load(Ordering::Acquire) {
            state if state & SHUT != 0 => GateMode::Shut,
            state if state & METERED != 0 => GateMode::Metered,
            _ => GateMode::Open,
        }
    }

    /// Returns how often sessions that wait for messages were called to look at the gate.
    pub(crate) fn calls(&self) -> u32 {
        self.calls.load(Ordering::Acquire)
    }

    /// Pauses the device, or ends the pause. The caller wakes the threads.
    pub(crate) fn set_paused(&self, paused: bool) {
        if paused {
            self.state.fetch_or(PAUSED, Ordering::SeqCst);
            self.calls.fetch_add(1, Ordering::SeqCst);
        } else {
            self.state.fetch_and(!PAUSED, Ordering::SeqCst);
        }
    }

    /// Returns whether the device is paused.
    pub(crate) fn is_paused(&self) -> bool {
        self.state.load(Ordering::Acquire) & PAUSED != 0
    }

    fn presences(&self) -> MutexGuard<'_, SessionStates> {
        lock(&self.presences)
    }

    /// Sets the receiver of reports. Only an arbiter that follows the reports may call [`Gate::arbitrate`].
    pub fn set_listener(&self, listener: GateListener) {
        self.presences().listener = Some(listener);
    }

    /// Follows an order of the arbiter, and wakes the sessions that it concerns.
    pub fn arbitrate(&self, turn: u32, passage: GateMode) {
        let mut presences = self.presences();
        let bits = match passage {
            GateMode::Open => 0,
            GateMode::Metered => METERED,
            GateMode::Shut => METERED | SHUT,
        };
        let before = self.state.load(Ordering::Relaxed) & METERED;
        // The other bits may change meanwhile.
        self.state.fetch_or(bits, Ordering::SeqCst);
        self.state.fetch_and(bits | HELD | PAUSED, Ordering::SeqCst);
        if bits != 0 && before == 0 {
            presences.doubt_all();
            self.calls.fetch_add(1, Ordering::SeqCst);
        }
        presences.turn = turn;
        presences.shut = passage == GateMode::Shut;
        if bits == 0 {
            presences.admission.clear();
        }
        presences.wake_all();
        if bits != 0 {
            presences.tell();
        }
    }

    /// Adds a session. It has no work yet, unless it is `doubtful` because it was restored.
    pub(crate) fn enter(&self, session: u32, thread: Thread, doubtful: bool) {
        self.presences().enter(session, thread, doubtful);
    }

    /// Removes a session, whose work has ended.
    pub(crate) fn leave(&self, session: u32) {
        self.presences().leave(session);
    }

    /// Records where a session's thread is, while the arbiter meters.
    pub(crate) fn moves(&self, session: u32, at: ThreadState) {
        self.presences().update(session, |presence| presence.moves(at));
    }

    /// Admits messages of a session up to its next question, which are expected to take a time in
    /// nanoseconds. Returns false if the session has to look at the gate again when its thread is woken, or
    /// after [`STALL`].
    pub(crate) fn admit(&self, session: u32, expected: u64) -> bool {
        let mut presences = self.presences();
        // The order may have changed since the caller read it, and with it who waits.
        if self.passage() != GateMode::Metered {
            return false;
        }
        let admitted = presences.admission.admit(session, expected, Instant::now());
        if admitted {
            presences.wake_next();
        }
        admitted
    }

    /// Removes a session from those that wait to be admitted, because it waits for something else now.
    pub(crate) fn withdraw(&self, session: u32) {
        let mut presences = self.presences();
        presences.admission.withdraw(session);
        presences.wake_next();
    }

    /// Records that a session has asked its executor to tell when messages up to `number` are complete.
    pub(crate) fn asks(&self, session: u32, number: u64) {
        let mut presences = self.presences();
        presences.admission.asks(session, number, Instant::now());
        presences.update(session, |presence| presence.asked = number);
    }

    /// Records that the work of all messages up to `number` is complete.
    pub(crate) fn settled(&self, session: u32, number: u64) {
        let mut presences = self.presences();
        presences.admission.settles(session, number, Instant::now());
        presences.wake_next();
        presences.update(session, |presence| presence.settles(number));
    }
}

#[cfg(test)]
mod tests;
