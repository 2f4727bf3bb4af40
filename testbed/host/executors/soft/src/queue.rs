//! The work of a session that cannot be done at once, and the thread that does it.
//!
//! As long as nothing is queued, the thread that reads the ring does the work itself: the ring's order is an order that CUDA allows,
//! and to hand work over costs more than most work. It queues when a stream is held for the guest, and always for an
//! adversary.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use vgpu_device::{Charge, SessionError};

use crate::adversary::Adversary;
use crate::order::{Id, Order};
use crate::runner::Runner;
use crate::task::Task;

/// How long an adversary waits for more work when nobody asks for any.
const PATIENCE: Duration = Duration::from_millis(2);

/// A task and the number of the message that it is of.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) task: Task<'static>,
    pub(crate) number: u64,
    /// What it is charged while it waits; nothing where what it holds is charged already.
    pub(crate) _bytes: Option<Charge>,
}

/// Whom a hold waits for.
#[derive(Debug)]
enum Hold {
    /// The guest, with this work behind it.
    Guest(Id),
    /// The stream: the guest has released it already.
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
    /// How much is not done.
    pending: AtomicUsize,
    state: Mutex<State>,
    wake: Condvar,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Queue {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    adversarial: bool,
}

impl Queue {
    /// A queue whose thread is started when it is first needed.
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

    /// Whether there is work that is not done. All effects of what is done are visible.
    pub(crate) fn is_busy(&self) -> bool {
        self.shared.pending.load(Ordering::Acquire) != 0
    }

    /// Whether so much more may wait.
    pub(crate) fn has_room(&self, more: usize) -> bool {
        let most = self.shared.runner.host.charges().limits().queued;
        (self.shared.pending.load(Ordering::Acquire) as u64).saturating_add(more as u64) <= most
    }

    /// Adds work.
    pub(crate) fn add<T>(&mut self, act: impl FnOnce(&mut Order<Job>) -> T) -> Result<T, SessionError> {
        if self.thread.is_none() {
            let shared = Arc::clone(&self.shared);
            let thread = Builder::new().name("soft work".into()).spawn(move || shared.work());
            let lost = |error| SessionError::OutOfMemory(format!("start a thread: {error}"));
            self.thread = Some(thread.map_err(lost)?);
        }
        let mut state = self.shared.state();
        let added = act(&mut state.order);
        self.shared.changed(state);
        Ok(added)
    }

    /// The guest lets the stream go on.
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
    /// What has not begun is not done any more, and what runs is stopped.
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

    fn changed(&self, state: MutexGuard<'_, State>) {
        self.pending.store(state.order.len(), Ordering::Release);
        drop(state);
        self.wake.notify_all();
    }

    /// The thread's whole life.
    fn work(&self) {
        while let Some((id, job)) = self.next() {
            let held = if let Task::Hold(hold, _) = &job.task { Some(*hold) } else { None };
            let number = job.number;
            // A panic is a bug of this program: the session finds an error, and goes on to its end.
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

    /// Waits for the next job; none: it is over.
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
