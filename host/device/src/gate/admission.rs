//! Which sessions of a metered device may submit, when the messages of all of them would take too long.
//!
//! Each session bounds its own work by time ([`Meter`](super::Meter)), but has a message in flight at least.
//! Where messages take milliseconds, those of several sessions are more than a slice. So the messages up to a
//! session's next question are admitted together, and all that are admitted and not complete take about
//! [`MOST`]. Sessions that must wait are admitted in the order in which they asked.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// Time that all admitted work should take at most, in nanoseconds.
const MOST: u64 = 4_000_000;
/// Parts of work that are admitted whatever they take, so that one is submitted while another one runs.
const LEAST: usize = 2;
/// Time after which a session without work in flight is admitted all the same, if nothing has completed
/// meanwhile. Kernels that wait for those of another process of the VM make progress so.
pub(crate) const PATIENCE: Duration = Duration::from_millis(50);

/// Admitted work of one session.
#[derive(Debug, Default)]
struct Admitted {
    /// What the messages since the newest question are expected to take, if they are admitted.
    open: Option<u64>,
    /// Newest message of each question that is not answered, and what the messages are expected to take.
    asked: VecDeque<(u64, u64)>,
}

impl Admitted {
    fn count(&self) -> usize {
        self.asked.len() + usize::from(self.open.is_some())
    }

    fn time(&self) -> u64 {
        self.asked.iter().map(|asked| asked.1).chain(self.open).sum()
    }
}

/// The admitted work of a device, and the sessions that wait.
#[derive(Debug, Default)]
pub(super) struct Admission {
    sessions: BTreeMap<u32, Admitted>,
    /// Sessions that wait, and since when.
    waiting: VecDeque<(u32, Instant)>,
    /// Time at which work was last complete.
    completed: Option<Instant>,
}

impl Admission {
    /// Admits messages of a session up to its next question. `expected` is the time from their submission to
    /// their completion, in nanoseconds, which includes work of other sessions that takes turns with them.
    /// Returns false if it has to wait.
    pub(super) fn admit(&mut self, session: u32, expected: u64, now: Instant) -> bool {
        let working = |(&number, admitted): (&u32, &Admitted)| number != session && admitted.count() > 0;
        let others = self.sessions.iter().filter(|&entry| working(entry)).count() as u64;
        let time = expected / (others + 1);
        let count: usize = self.sessions.values().map(Admitted::count).sum();
        let sum: u64 = self.sessions.values().map(Admitted::time).sum();
        let fits = count < LEAST || sum.saturating_add(time) <= MOST;
        let next = self.waiting.front().is_none_or(|first| first.0 == session);
        let since = self.waiting.iter().find(|waiting| waiting.0 == session).map(|waiting| waiting.1);
        let stuck = since.max(self.completed).is_some_and(|since| now.duration_since(since) >= PATIENCE);
        let own = self.sessions.entry(session).or_default();
        if (next && fits) || (since.is_some() && stuck && own.count() == 0) {
            own.open = Some(time);
            self.waiting.retain(|waiting| waiting.0 != session);
            return true;
        }
        if since.is_none() {
            self.waiting.push_back((session, now));
        }
        false
    }

    /// Records that a session has asked about its messages up to `number`.
    pub(super) fn asks(&mut self, session: u32, number: u64) {
        let own = self.sessions.entry(session).or_default();
        let time = own.open.take().unwrap_or(0);
        own.asked.push_back((number, time));
    }

    /// Records that all messages of a session up to `number` are complete.
    pub(super) fn settles(&mut self, session: u32, number: u64, now: Instant) {
        self.completed = Some(now);
        if let Some(own) = self.sessions.get_mut(&session) {
            own.asked.retain(|asked| asked.0 > number);
        }
    }

    /// Removes a session that has ended.
    pub(super) fn leave(&mut self, session: u32) {
        self.sessions.remove(&session);
        self.waiting.retain(|waiting| waiting.0 != session);
    }

    /// Lets nobody wait any more, because messages pass freely.
    pub(super) fn clear(&mut self) {
        self.waiting.clear();
    }

    /// Returns the session that is admitted next, if one waits.
    pub(super) fn next(&self) -> Option<u32> {
        self.waiting.front().map(|waiting| waiting.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn long_messages_of_several_sessions_take_turns_and_short_ones_do_not_wait() {
        let (mut admission, now) = (Admission::default(), Instant::now());
        assert!(admission.admit(1, 0, now), "nothing is known of the first messages");
        admission.asks(1, 8);
        for session in 2..6 {
            assert!(admission.admit(session, 2 * MS, now), "{session}");
            admission.asks(session, 1);
        }
        admission.settles(1, 8, now);
        for session in 2..6 {
            admission.settles(session, 1, now);
        }
        // Kernels of 3 ms, of which five sessions have one each.
        assert!(admission.admit(1, 3 * MS, now) && admission.admit(2, 6 * MS, now));
        assert!(!admission.admit(3, 9 * MS, now) && !admission.admit(4, 9 * MS, now));
        admission.asks(1, 9);
        admission.asks(2, 9);
        admission.settles(1, 9, now);
        assert!(!admission.admit(1, 3 * MS, now), "others wait for longer");
        assert_eq!(admission.next(), Some(3));
        assert!(!admission.admit(4, 9 * MS, now) && admission.admit(3, 9 * MS, now));
        assert_eq!(admission.next(), Some(4));
        admission.leave(4);
        assert_eq!(admission.next(), Some(1));
    }

    #[test]
    fn a_session_is_admitted_in_the_end_beside_kernels_that_never_end() {
        let (mut admission, now) = (Admission::default(), Instant::now());
        for session in [1, 2] {
            assert!(admission.admit(session, 100 * MS, now));
            admission.asks(session, 1);
        }
        assert!(!admission.admit(3, MS, now));
        assert!(!admission.admit(3, MS, now + PATIENCE / 2));
        assert!(!admission.admit(1, MS, now + 2 * PATIENCE), "it has work in flight");
        assert!(admission.admit(3, MS, now + PATIENCE));
        admission.clear();
        assert_eq!(admission.next(), None);
    }
}
