//! Decides which sessions of a metered device may submit, when the messages of all of them would take too
//! long.
//!
//! Each session bounds its own work by time ([`InFlightMeter`](super::InFlightMeter)), but has a message in
//! flight at least.
//! Where messages take milliseconds, those of several sessions are more than a slice. So the messages between
//! two questions of a session, a *part*, are admitted together, and all parts that are admitted and not
//! complete take about [`MOST`]. Sessions that must wait are admitted in the order in which they came.
//!
//! Kernels that go on for long do not count: the driver lets other contexts work beside them, and one may
//! wait for a kernel of another session, which therefore is admitted.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// Time that all admitted parts should take at most, in nanoseconds.
const MOST: u64 = 4_000_000;
/// Number of parts that are admitted whatever they take, so that one is submitted while another one runs.
const LEAST: usize = 2;
/// Time without a completion after which a session's parts do not count. It is longer than a slice.
pub(crate) const STALL: Duration = Duration::from_millis(10);

/// Parts of one session that are admitted and not complete.
#[derive(Debug)]
struct Admitted {
    /// Expected time of the messages since the newest question, if they are admitted.
    open: Option<u64>,
    /// Newest message of each question that is not answered, and the expected time of the part.
    asked: VecDeque<(u64, u64)>,
    /// Expected time of all these parts.
    time: u64,
    /// Time of the newest completion, or of the first admission after that.
    progress: Instant,
}

impl Admitted {
    fn parts(&self) -> usize {
        self.asked.len() + usize::from(self.open.is_some())
    }
}

/// The admitted parts of a device, and the sessions that wait.
#[derive(Debug, Default)]
pub(super) struct Admission {
    sessions: BTreeMap<u32, Admitted>,
    waiting: VecDeque<u32>,
}

impl Admission {
    /// Admits the next part of a session. `expected` is the time from its submission to its completion in
    /// nanoseconds, which includes work of other sessions that takes turns with it. Returns false if the
    /// session has to wait.
    pub(super) fn admit(&mut self, session: u32, expected: u64, now: Instant) -> bool {
        let (mut others, mut parts, mut sum) = (0, 0, 0_u64);
        for (&number, admitted) in self.sessions.iter().filter(|(_, admitted)| admitted.parts() > 0) {
            others += u64::from(number != session);
            if now.saturating_duration_since(admitted.progress) < STALL {
                parts += admitted.parts();
                sum = sum.saturating_add(admitted.time);
            }
        }
        let time = expected / (others + 1);
        let fits = parts < LEAST || sum.saturating_add(time) <= MOST;
        if !fits || self.first_waiting().is_some_and(|first| first != session) {
            if !self.waiting.contains(&session) {
                self.waiting.push_back(session);
            }
            return false;
        }
        self.withdraw(session);
        let own = self.entry(session, now);
        if own.parts() == 0 {
            own.progress = now;
        }
        own.open = Some(time);
        own.time += time;
        true
    }

    fn entry(&mut self, session: u32, now: Instant) -> &mut Admitted {
        let none = || Admitted { open: None, asked: VecDeque::new(), time: 0, progress: now };
        self.sessions.entry(session).or_insert_with(none)
    }

    /// Records that a session has asked about its messages up to `number`.
    pub(super) fn asks(&mut self, session: u32, number: u64, now: Instant) {
        let own = self.entry(session, now);
        // What passed while nobody metered was not admitted.
        let time = own.open.take().unwrap_or(0);
        own.asked.push_back((number, time));
    }

    /// Records that all messages of a session up to `number` are complete.
    pub(super) fn settles(&mut self, session: u32, number: u64, now: Instant) {
        let Some(own) = self.sessions.get_mut(&session) else { return };
        while let Some((_, time)) = own.asked.pop_front_if(|asked| asked.0 <= number) {
            own.time -= time;
        }
        own.progress = now;
    }

    /// Removes a session from those that wait.
    pub(super) fn withdraw(&mut self, session: u32) {
        self.waiting.retain(|waiting| *waiting != session);
    }

    /// Removes a session that has ended.
    pub(super) fn leave(&mut self, session: u32) {
        self.sessions.remove(&session);
        self.withdraw(session);
    }

    /// Empties the list of sessions that wait, because messages pass freely.
    pub(super) fn clear(&mut self) {
        self.waiting.clear();
    }

    /// Returns the session that is admitted next, if one waits.
    pub(super) fn first_waiting(&self) -> Option<u32> {
        self.waiting.front().copied()
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
        admission.asks(1, 8, now);
        for session in 2..6 {
            assert!(admission.admit(session, 2 * MS, now), "{session}");
            admission.asks(session, 1, now);
        }
        admission.settles(1, 8, now);
        for session in 2..6 {
            admission.settles(session, 1, now);
        }
        // Kernels of 3 ms, of which five sessions have one each.
        assert!(admission.admit(1, 3 * MS, now) && admission.admit(2, 6 * MS, now));
        assert!(!admission.admit(3, 9 * MS, now) && !admission.admit(4, 9 * MS, now));
        admission.asks(1, 9, now);
        admission.asks(2, 9, now);
        admission.settles(1, 9, now);
        assert!(!admission.admit(1, 3 * MS, now), "others wait for longer");
        assert_eq!(admission.first_waiting(), Some(3));
        assert!(!admission.admit(4, 9 * MS, now) && admission.admit(3, 9 * MS, now));
        assert_eq!(admission.first_waiting(), Some(4));
        admission.leave(4);
        assert_eq!(admission.first_waiting(), Some(1));
    }

    #[test]
    fn nobody_waits_for_kernels_that_never_end() {
        let (mut admission, now) = (Admission::default(), Instant::now());
        for session in [1, 2] {
            assert!(admission.admit(session, 1000 * MS, now));
            admission.asks(session, 1, now);
        }
        assert!(!admission.admit(3, MS, now + STALL / 2));
        // The first one may submit what ends its own kernel.
        assert!(!admission.admit(1, 1000 * MS, now + STALL), "it is behind the third");
        assert!(admission.admit(3, MS, now + STALL) && admission.admit(1, 1000 * MS, now + STALL));
        assert_eq!(admission.first_waiting(), None);
    }

    #[test]
    fn all_that_was_admitted_is_given_back() {
        let (mut admission, now) = (Admission::default(), Instant::now());
        for number in 1..100 {
            assert!(admission.admit(1, MS / 100, now), "{number}");
            admission.asks(1, number, now);
        }
        admission.asks(1, 100, now);
        admission.settles(1, 100, now);
        let own = &admission.sessions[&1];
        assert_eq!((own.parts(), own.time), (0, 0));
    }
}
