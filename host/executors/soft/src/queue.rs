//! The queue of a session: tasks that have to wait, and the thread that carries them out.
//!
//! While the queue is empty, the thread that reads the ring carries out tasks itself: CUDA permits the ring's
//! order, and handing a task over costs more than most tasks take. Tasks are queued while a stream is held
//! for the guest, and always for an adversary.

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

/// Time for which an adversary waits for more work while no queued task is demanded.
const PATIENCE: Duration = Duration::from_millis(2);

/// A task, with the number of its message.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) task: Task<'static>,
    pub(crate) number: u64,
    /// Charge for the task while it waits, or `None` if its memory is charged already.
    pub(crate) _bytes: Option<Charge>,
}

/// The side that has reached a hold first: the stream or the guest.
#[derive(Debug)]
enum Hold {
    /// The stream has reached the hold. The guest must release it, which completes the work with this id.
    Guest(Id),
    /// The guest has released the hold. The stream must reach it.
    Stream,
}

#[derive(Debug)]
struct QueueState {
    order: Order<Job>,
    adversary: Option<Adversary>,
    holds: HashMap<u32, Hold>,
    /// Whether the thread carries out a task.
    running: bool,
    /// Numbers of the messages whose settling the host is told once no task is ready or running.
    settling: Vec<u64>,
    ended: bool,
}

#[derive(Debug)]
struct QueueShared {
    runner: Arc<Runner>,
    /// Number of tasks and other nodes of the order that are not completed.
    pending: AtomicUsize,
    state: Mutex<QueueState>,
    wake: Condvar,
}

/// The tasks of a session that wait. Dropping the queue ends them.
#[derive(Debug)]
pub(crate) struct Queue {
    shared: Arc<QueueShared>,
    thread: Option<JoinHandle<()>>,
    adversarial: bool,
}

impl Queue {
    /// Makes an empty queue. Its thread starts with the first task.
    pub(crate) fn new(runner: Arc<Runner>, adversary: Option<Adversary>) -> Self {
        let adversarial = adversary.is_some();
        let state = QueueState {
            order: Order::default(),
            adversary,
            holds: HashMap::new(),
            running: false,
            settling: Vec::new(),
            ended: false,
        };
        let (pending, wake) = (AtomicUsize::new(0), Condvar::new());
        let shared = Arc::new(QueueShared { runner, pending, state: Mutex::new(state), wake });
        Self { shared, thread: None, adversarial }
    }

    /// Returns whether a task may be carried out at once, by the thread that reads the ring.
    pub(crate) fn is_direct(&self) -> bool {
        !self.adversarial && !self.is_busy()
    }

    /// Returns whether there are tasks that are not completed. The effects of completed tasks are visible.
    pub(crate) fn is_busy(&self) -> bool {
        self.shared.pending.load(Ordering::Acquire) != 0
    }

    /// Returns whether `more` tasks may be queued within the session's limit (`Limits::queued`).
    pub(crate) fn has_room(&self, more: usize) -> bool {
        let most = self.shared.runner.host.charges().limits().queued;
        (self.shared.pending.load(Ordering::Acquire) as u64).saturating_add(more as u64) <= most
    }

    /// Adds work; `act` inserts it in the order. Starts the queue's thread for the first work, and fails only
    /// if the system refuses that thread.
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

    /// Returns whether every task that does not wait for the guest is completed. If it returns false, the
    /// host is told of message `number` once they are.
    pub(crate) fn settle(&self, number: u64) -> bool {
        let mut state = self.shared.state();
        let settled = !state.running && state.order.ready().is_empty();
        if !settled {
            state.settling.push(number);
        }
        settled
    }

    /// Releases a hold, so that the stream continues. The guest may release it before the stream reaches it.
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
    /// Stops the running task. Tasks that have not started are dropped.
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

impl QueueShared {
    fn state(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Publishes a change of the state and wakes the thread.
    fn changed(&self, state: MutexGuard<'_, QueueState>) {
        self.pending.store(state.order.len(), Ordering::Release);
        drop(state);
        self.wake.notify_all();
    }

    /// Carries out tasks until the queue is dropped. This is the body of the thread.
    fn work(&self) {
        while let Some((id, job)) = self.next() {
            let held = if let Task::Hold(hold, _) = &job.task { Some(*hold) } else { None };
            let number = job.number;
            // A panic is a bug in this program. The session gets an error and continues to its end.
            let done = catch_unwind(AssertUnwindSafe(|| self.runner.execute(job.task, number)));
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

    /// Waits for the next task and takes it out of the order. Returns `None` when the queue is dropped.
    fn next(&self) -> Option<(Id, Job)> {
        let mut state = self.state();
        let mut patience = true;
        state.running = false;
        loop {
            if state.ended {
                return None;
            }
            let QueueState { order, adversary, .. } = &mut *state;
            let id = match adversary {
                None => order.ready().first().copied(),
                Some(adversary) => adversary.choose(order, patience),
            };
            if let Some(id) = id
                && let Some(job) = order.begin(id)
            {
                state.running = true;
                return Some((id, job));
            }
            if order.ready().is_empty() {
                for number in state.settling.drain(..) {
                    self.runner.host.report_complete(number);
                }
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
