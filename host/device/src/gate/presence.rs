//! States of a device's sessions, from which reports to the arbiter are made.

use std::collections::BTreeMap;
use std::fmt;
use std::thread::Thread;

use super::admission::Admission;
use super::{GateListener, GateReport};

/// State of a session's thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ThreadState {
    /// It has nothing to carry out, or the operator holds it.
    Rest,
    /// It has passed the gate, and carries out messages.
    Inside,
    /// It waits at the gate.
    Gate,
}

/// State of one session, as its thread and its executor have reported it.
#[derive(Debug)]
pub(super) struct SessionState {
    at: ThreadState,
    /// Whether the thread has reported no state since metering began, or since the session was restored.
    doubtful: bool,
    /// Number of the newest message whose completion was asked for.
    pub(super) asked: u64,
    settled: u64,
    thread: Thread,
}

impl SessionState {
    /// Records the state of the thread.
    pub(super) const fn moves(&mut self, at: ThreadState) {
        self.at = at;
        self.doubtful = false;
    }

    /// Records a completion. More than was asked for is not believed.
    pub(super) fn settles(&mut self, number: u64) {
        self.settled = self.settled.max(number.min(self.asked));
        self.thread.unpark();
    }

    fn is_in_flight(&self) -> bool {
        self.doubtful || self.at == ThreadState::Inside || self.settled < self.asked
    }
}

/// The sessions of a device, and the reports that the arbiter has had.
#[derive(Default)]
pub(super) struct SessionStates {
    sessions: BTreeMap<u32, SessionState>,
    /// Number of the newest order, and whether it shut the gate.
    pub(super) turn: u32,
    pub(super) shut: bool,
    pub(super) admission: Admission,
    pub(super) listener: Option<GateListener>,
    told: Option<GateReport>,
}

impl fmt::Debug for SessionStates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionStates").field("sessions", &self.sessions).finish_non_exhaustive()
    }
}

impl SessionStates {
    pub(super) fn enter(&mut self, session: u32, thread: Thread, doubtful: bool) {
        let presence = SessionState { at: ThreadState::Rest, doubtful, asked: 0, settled: 0, thread };
        self.sessions.insert(session, presence);
        if doubtful {
            self.tell();
        }
    }

    pub(super) fn leave(&mut self, session: u32) {
        self.sessions.remove(&session);
        self.admission.leave(session);
        self.wake_next();
        self.tell();
    }

    /// Changes the state of a session, if it has not ended.
    pub(super) fn update(&mut self, session: u32, change: impl FnOnce(&mut SessionState)) {
        if let Some(presence) = self.sessions.get_mut(&session) {
            change(presence);
            self.tell();
        }
    }

    /// Takes each session to have work in flight until its thread reports a state: messages that passed an
    /// open gate were not counted.
    pub(super) fn doubt_all(&mut self) {
        for presence in self.sessions.values_mut() {
            presence.doubtful = true;
        }
    }

    pub(super) fn wake_all(&self) {
        for presence in self.sessions.values() {
            presence.thread.unpark();
        }
    }

    /// Wakes the session that is admitted next, if one waits.
    pub(super) fn wake_next(&self) {
        if let Some(presence) = self.admission.first_waiting().and_then(|session| self.sessions.get(&session))
        {
            presence.thread.unpark();
        }
    }

    /// Sends the listener a report, unless it equals the last one.
    pub(super) fn tell(&mut self) {
        let in_flight = self.sessions.values().any(SessionState::is_in_flight);
        // Until the work is complete, more of it is likely to follow, and each report wakes the arbiter.
        let follows = in_flight && !self.shut;
        let work = follows || self.sessions.values().any(|presence| presence.at != ThreadState::Rest);
        let report = GateReport { turn: self.turn, work, in_flight };
        if let Some(listener) = &self.listener
            && self.told.replace(report) != Some(report)
        {
            listener(report);
        }
    }
}
