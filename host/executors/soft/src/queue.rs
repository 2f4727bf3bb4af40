//! The queue of a session: work that cannot be done at once, and the thread that does it.
//!
//! As long as nothing is queued, the thread that reads the ring does the work itself: CUDA allows the ring's
//! order, and to hand work over costs more than most work takes. Work is queued when a stream is held for the
//! guest, and always for an adversary.

mod adversary;
pub(crate) mod order;

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use vgpu_device::threads;
use vgpu_device::{Charge, SessionError};

use crate::runner::Runner;
use crate::task::Task;

use order::{Id, Order};

pub(crate) use adversary::Adversary;

/// How long an adversary waits for more work when nobody waits for what there is.
const PATIENCE: Duration = Duration::from_millis(2);

/// A task, and the number of the message that asked for it.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) task: Task<'static>,
    pub(crate) number: u64,
    /// What the task is charged while it waits. `None` where what it holds is charged already.
    pub(crate) _bytes: Option<Charge>,
}

/// The side for which a hold waits.
#[derive(Debug)]
enum Hold {
    /// The guest has to release it; the work with this id is finished then.
    Guest(Id),
    /// The stream has to reach it: the guest has released it already.
    Stream,
}

#[derive(Debug)]
struct State {
    order: Order<Job>,
    adversary: Option<Adversary>,
    holds: HashMap<u32, Hold>,
    ended: bool,
}

#[derive(Debug)]
struct Shared {
    runner: Arc<Runner>,
    /// Number of pieces of work that are not done.
    pending: AtomicUsize,
    state: Mutex<State>,
    wake: Condvar,
}

/// The work of a session that waits. Dropping the queue ends the work.
#[derive(Debug)]
pub(crate) struct Queue {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    adversarial: bool,
}

impl Queue {
    /// An empty queue. Its thread is started when work is first added.
    pub(crate) fn new(runner: Arc<Runner>, adversary: Option<Adversary>) -> Self {
        let adversarial = adversary.is_some();
        let state = State { order: Order::default(), adversary, holds: HashMap::new(), ended: false };
        let (pending, wake) = (AtomicUsize::new(0), Condvar::new());
        let shared = Arc::new(Shared { runner, pending, state: Mutex::new(state), wake });
        Self { shared, thread: None, adversarial }
    }

    /// Whether work may be done at once.
    pub(crate) fn is_direct(&self) -> bool {
        !self.adversarial && !self.is_busy()
    }

    /// Whether there is work that is not done. All effects of finished work are visible.
    pub(crate) fn is_busy(&self) -> bool {
        self.shared.pending.load(Ordering::Acquire) != 0
    }

    /// Whether `more` pieces of work may wait besides those that do.
    pub(crate) fn has_room(&self, more: usize) -> bool {
        let most = self.shared.runner.host.charges().limits().queued;
        (self.shared.pending.load(Ordering::Acquire) as u64).saturating_add(more as u64) <= most
    }

    /// Adds work, which `act` puts into its order.
    pub(crate) fn add<T>(&mut self, act: impl FnOnce(&mut Order<Job>) -> T) -> Result<T, SessionError> {
        if self.thread.is_none() {
            let shared = Arc::clone(&self.shared);
            let thread = threads::spawn("soft work", move || shared.work());
            let lost = |error| SessionError::OutOfMemory(format!("start a thread: {error}"));
            self.thread = Some(thread.map_err(lost)?);
        }
        let mut state = self.shared.state();
        let added = act(&mut state.order);
        self.shared.changed(state);
        Ok(added)
    }

    /// Releases a hold: the guest lets the stream go on.
    pub(crate) fn release(&self, hold: u32) {
        let mut state = self.shared.state();
        match state.holds.remove(&hold) {
            Some(Hold::Guest(id)) => state.order.finish(id),
            _ => drop(state.holds.insert(hold, Hold::Stream)),
        }
        self.shared.changed(state);
    }
}

impl Drop for Queue {
    /// Stops what runs. Work that has not started is not done any more.
    fn drop(&mut self) {
        self.shared.runner.stop();
        self.shared.state().ended = true;
        self.shared.wake.notify_all();
        if let Some(thread) = self.thread.take() {
            // Panics of tasks have been caught.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Publishes a change of the state and wakes the thread.
    fn changed(&self, state: MutexGuard<'_, State>) {
        self.pending.store(state.order.len(), Ordering::Release);
        drop(state);
        self.wake.notify_all();
    }

    /// Does work until the queue is dropped. This is the thread's whole life.
    fn work(&self) {
        while let Some((id, job)) = self.next() {
            let held = if let Task::Hold(hold, _) = &job.task { Some(*hold) } else { None };
            let number = job.number;
            // A panic is a bug of this program. The session gets an error and goes on to its end.
            let done = catch_unwind(AssertUnwindSafe(|| self.runner.run(job.task, number)));
            if done.is_err() {
                self.runner.lost(number);
            }
            let mut state = self.state();
            match held.map(|hold| (hold, state.holds.remove(&hold))) {
                Some((hold, None)) => drop(state.holds.insert(hold, Hold::Guest(id))),
                _ => state.order.finish(id),
            }
            self.changed(state);
        }
    }

    /// Waits for the next job. `None` when the queue is dropped.
    fn next(&self) -> Option<(Id, Job)> {
        let mut state = self.state();
        let mut patience = true;
        loop {
            if state.ended {
                return None;
            }
            let State { order, adversary, .. } = &mut *state;
            let id = match adversary {
                None => order.ready().first().copied(),
                Some(adversary) => adversary.choose(order, patience),
            };
            if let Some(id) = id
                && let Some(job) = order.begin(id)
            {
                return Some((id, job));
            }
            if order.ready().is_empty() {
                state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
            } else {
                let wait = self.wake.wait_timeout(state, PATIENCE);
                let (now, timeout) = wait.unwrap_or_else(PoisonError::into_inner);
                state = now;
                patience = !timeout.timed_out();
            }
        }
    }
}
