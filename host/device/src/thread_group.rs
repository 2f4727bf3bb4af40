//! Threads that end by themselves once they are told to, and that nobody waits for longer than a deadline.

use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Instant;

use crate::sync::lock;
use crate::threads;

/// Threads that serve one purpose and end by themselves.
#[derive(Debug, Default)]
pub(crate) struct ThreadGroup(Arc<RunningCount>);

#[derive(Debug, Default)]
struct RunningCount {
    running: Mutex<usize>,
    /// Condition that is notified when the last thread ends.
    none: Condvar,
}

/// Counts a thread until it ends, by return or by panic.
struct GroupMember(Arc<RunningCount>);

impl Drop for GroupMember {
    fn drop(&mut self) {
        let mut running = lock(&self.0.running);
        *running -= 1;
        if *running == 0 {
            self.0.none.notify_all();
        }
    }
}

impl ThreadGroup {
    /// Starts a thread.
    ///
    /// # Errors
    /// The system has no room for another thread.
    pub(crate) fn spawn(&self, name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
        *lock(&self.0.running) += 1;
        let member = GroupMember(Arc::clone(&self.0));
        let thread = threads::spawn(name, move || {
            let _member = member;
            work();
        });
        thread.map(drop)
    }

    /// Waits until all threads have ended, but not beyond `deadline`. Returns whether they have.
    pub(crate) fn wait(&self, deadline: Instant) -> bool {
        let mut running = lock(&self.0.running);
        while *running > 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            running = self.0.none.wait_timeout(running, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_thread_that_does_not_end_is_waited_for_until_the_deadline() {
        let crew = ThreadGroup::default();
        assert!(crew.wait(Instant::now()), "there is none");
        let (release, parked) = mpsc::channel::<()>();
        crew.spawn("parked", move || assert!(parked.recv().is_err())).unwrap();
        assert!(!crew.wait(Instant::now() + Duration::from_millis(1)));
        drop(release);
        assert!(crew.wait(Instant::now() + Duration::from_mins(1)));
    }
}
