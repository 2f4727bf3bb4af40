//! Collects the states of a device's sessions while the device is paused.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Instant;

use crate::saved::descriptors::KeptDescriptors;
use crate::saved::error::{NotSaved, PauseError};
use crate::saved::state::SessionState;
use crate::sync::lock;

/// A session whose thread waits at a boundary between two messages.
#[derive(Debug)]
pub(crate) struct StoppedSession {
    pub(crate) channel: u32,
    pub(crate) state: SessionState,
    pub(crate) descriptors: KeptDescriptors,
}

/// Tracks whether the device is paused, and which sessions have stopped for the pause.
#[derive(Debug, Default)]
pub(crate) struct Pauses {
    current: Mutex<CurrentPause>,
    arrived: Condvar,
}

#[derive(Debug, Default)]
struct CurrentPause {
    /// Number of pauses so far, by which a thread that missed the end of one notices the next.
    turns: u64,
    active: bool,
    /// Sessions that have a thread, by number. Each has what its thread left in this pause, or `None` until
    /// it stops.
    sessions: BTreeMap<u32, Option<Result<StoppedSession, NotSaved>>>,
}

impl CurrentPause {
    fn clear(&mut self) {
        self.sessions.values_mut().for_each(|left| *left = None);
    }
}

impl Pauses {
    /// Adds a session, whose thread will stop in each pause until it leaves.
    pub(crate) fn enter(&self, session: u32) {
        lock(&self.current).sessions.insert(session, None);
    }

    /// Removes a session that has ended. A pause no longer waits for it.
    pub(crate) fn leave(&self, session: u32) {
        lock(&self.current).sessions.remove(&session);
        self.arrived.notify_all();
    }

    /// Returns the number of the current pause, or `None` if the device is not paused.
    pub(crate) fn turn(&self) -> Option<u64> {
        let current = lock(&self.current);
        current.active.then_some(current.turns)
    }

    /// Begins a pause. Fails if one has begun and not ended.
    pub(crate) fn begin(&self) -> Result<(), PauseError> {
        let mut current = lock(&self.current);
        if current.active {
            return Err(PauseError::Paused);
        }
        current.active = true;
        current.turns += 1;
        Ok(())
    }

    /// Ends the pause. The caller wakes the threads.
    pub(crate) fn end(&self) {
        let mut current = lock(&self.current);
        current.active = false;
        current.clear();
    }

    /// Leaves the state of a session, or says why it cannot be saved. Does nothing if the pause has ended.
    pub(crate) fn arrive(&self, session: u32, turn: u64, left: Result<StoppedSession, NotSaved>) {
        let mut current = lock(&self.current);
        if current.active
            && current.turns == turn
            && let Some(place) = current.sessions.get_mut(&session)
        {
            *place = Some(left);
            self.arrived.notify_all();
        }
    }

    /// Discards the state that a session has left, because its thread continues: the pause or the session is
    /// ending.
    pub(crate) fn withdraw(&self, session: u32) {
        if let Some(place) = lock(&self.current).sessions.get_mut(&session) {
            *place = None;
        }
    }

    /// Waits until all sessions have left their state, and returns the states. Fails at once if one cannot be
    /// saved, and at `deadline` with the numbers of the sessions that have not stopped.
    pub(crate) fn wait(&self, deadline: Instant) -> Result<Vec<StoppedSession>, PauseError> {
        let mut current = lock(&self.current);
        loop {
            let refused = current.sessions.iter().find_map(|(&session, left)| {
                let source = left.as_ref()?.as_ref().err()?.clone();
                Some(PauseError::Session { session, source })
            });
            if let Some(refused) = refused {
                return Err(refused);
            }
            let missing = current.sessions.iter().filter(|(_, left)| left.is_none());
            let missing: Vec<u32> = missing.map(|(&session, _)| session).collect();
            if missing.is_empty() {
                let left = current.sessions.values_mut().filter_map(Option::take);
                return Ok(left.filter_map(Result::ok).collect());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(PauseError::Busy(missing));
            }
            current = self.arrived.wait_timeout(current, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn refused(pauses: &Pauses, turn: Option<u64>, session: u32) {
        pauses.arrive(session, turn.unwrap(), Err(NotSaved::Ending));
    }

    #[test]
    fn a_session_that_arrives_late_or_is_no_more_belongs_to_no_pause() {
        let (pauses, now) = (Pauses::default(), Instant::now());
        pauses.enter(1);
        pauses.enter(2);
        assert_eq!(pauses.turn(), None);
        pauses.begin().unwrap();
        let first = pauses.turn();
        assert_eq!(pauses.begin(), Err(PauseError::Paused));
        assert_eq!(pauses.wait(now).unwrap_err(), PauseError::Busy(vec![1, 2]));
        pauses.end();
        // It belongs to a pause that has ended, whether another one goes on or not.
        refused(&pauses, first, 1);
        pauses.begin().unwrap();
        refused(&pauses, first, 1);
        pauses.leave(2);
        assert_eq!(pauses.wait(now).unwrap_err(), PauseError::Busy(vec![1]));
        refused(&pauses, pauses.turn(), 2);
        refused(&pauses, pauses.turn(), 1);
        let error = PauseError::Session { session: 1, source: NotSaved::Ending };
        assert_eq!(pauses.wait(now).unwrap_err(), error);
        pauses.withdraw(1);
        assert_eq!(pauses.wait(now).unwrap_err(), PauseError::Busy(vec![1]));
    }

    #[test]
    fn the_last_session_that_leaves_ends_the_wait() {
        let pauses = Pauses::default();
        pauses.enter(1);
        pauses.begin().unwrap();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| pauses.wait(Instant::now() + Duration::from_mins(2)));
            pauses.leave(1);
            assert_eq!(waits.join().unwrap().unwrap().len(), 0);
        });
    }
}
