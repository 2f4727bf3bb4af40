//! Worker threads, shared by all sessions. Work is put into a list, and free workers take part in it by
//! turns: while other work waits, a worker leaves its work after a while and takes up what has waited
//! longest. So each session has its own thread and an equal share of the workers, whatever the others launch.
//!
//! A worker can leave work only between two pieces of it, and a piece may have no end. A worker that stays in
//! one piece while other work waits is away: it belongs to that work from then on and ends with it, and
//! another thread takes its place. The operating system then divides the processors among threads, of which
//! no session has more than the pool was made for.

mod worker;

#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use worker::PoolWorker;

/// How long a worker polls for new work before it sleeps. Launches often follow each other at once, and to
/// wake a thread takes as long.
const SPIN: Duration = Duration::from_micros(100);

/// How long a worker takes part in one work at least before it changes to another that waits: long enough
/// that the change costs nothing, and short beside any time that matters.
const SLICE: Duration = Duration::from_millis(2);

/// How long a worker may stay in one piece of work while other work waits before another thread takes its
/// place. It is two slices, so that work whose pieces are just shorter gets no more than two turns for each
/// turn of the others.
const OVERSTAY: Duration = Duration::from_millis(4);

/// Work that several threads can do together.
pub(crate) trait ParallelWork: Send + Sync {
    /// Takes part until no piece is left to start, or `stay`, which is asked before each piece, says no.
    fn run_pieces(&self, stay: &dyn Fn() -> bool);

    /// Whether a piece is left that one more thread could start.
    fn is_open(&self) -> bool;
}

/// Worker threads. Clones are the same pool, which ends with the last of them.
#[derive(Clone)]
pub struct Pool {
    inner: Arc<PoolHandle>,
}

struct PoolHandle {
    shared: Arc<PoolShared>,
}

struct PoolShared {
    state: Mutex<PoolState>,
    /// Number of jobs that were ever posted. Workers poll it while they spin.
    posted: AtomicU64,
    wake: Condvar,
    sleeping: AtomicUsize,
    /// Number of jobs in the list.
    listed: AtomicUsize,
    /// Number of workers that are not away, which is also how many may take part in one job.
    workers: AtomicUsize,
}

#[derive(Default)]
struct PoolState {
    /// The job that workers have left alone longest comes first.
    jobs: VecDeque<Arc<PoolJob>>,
    /// Workers that take part in a job.
    assignments: Vec<Assignment>,
    threads: Vec<JoinHandle<()>>,
    /// Number of threads that were started. Each thread has a number of its own.
    started: usize,
    over: bool,
}

/// A worker that takes part in a job.
struct Assignment {
    worker: Arc<PoolWorker>,
    /// Number of pieces for which it had asked when that was last checked, and since when that has not
    /// changed.
    asked: u64,
    since: Instant,
}

struct PoolJob {
    work: Arc<dyn ParallelWork>,
    helpers: Mutex<Helpers>,
    idle: Condvar,
}

/// Workers that take part in a job.
#[derive(Default)]
struct Helpers {
    busy: usize,
    /// Set when one of them has panicked, so that something of the work is not done.
    panicked: bool,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("threads", &self.threads()).finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pool {
    /// A pool with which a launch runs on up to `threads` threads, the caller's included. There are fewer if
    /// the system has no more.
    #[must_use]
    pub fn new(threads: usize) -> Self {
        let shared = Arc::new(PoolShared {
            state: Mutex::default(),
            posted: AtomicU64::new(0),
            wake: Condvar::new(),
            sleeping: AtomicUsize::new(0),
            listed: AtomicUsize::new(0),
            workers: AtomicUsize::new(0),
        });
        let mut state = lock(&shared.state);
        let started = (1..threads.max(1)).take_while(|_| shared.start(&mut state)).count();
        shared.workers.store(started, Ordering::Relaxed);
        drop(state);
        Self { inner: Arc::new(PoolHandle { shared }) }
    }

    /// Number of threads on which a launch runs.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.inner.shared.workers.load(Ordering::Relaxed) + 1
    }

    /// Whether some worker is awake and would take up work at once.
    pub(crate) fn is_awake(&self) -> bool {
        let shared = &self.inner.shared;
        shared.sleeping.load(Ordering::Relaxed) < shared.workers.load(Ordering::Relaxed)
    }

    /// Does `work` with the help of workers. Returns when all of it is done.
    ///
    /// # Panics
    /// A worker has panicked, so that something of the work is not done.
    pub(crate) fn execute(&self, work: Arc<dyn ParallelWork>) {
        let shared = &self.inner.shared;
        let listed = Listed {
            shared,
            job: Arc::new(PoolJob { work, helpers: Mutex::default(), idle: Condvar::new() }),
        };
        shared.post(&listed.job);
        let looked = Cell::new(None::<Instant>);
        listed.job.work.run_pieces(&|| {
            if shared.is_crowded() {
                let now = Instant::now();
                if looked.get().is_none_or(|looked| now.saturating_duration_since(looked) >= SLICE) {
                    looked.set(Some(now));
                    shared.replace_away(&mut lock(&shared.state), now);
                }
            }
            true
        });
        let job = Arc::clone(&listed.job);
        drop(listed);
        assert!(!lock(&job.helpers).panicked, "a thread that took part in this work has panicked");
    }
}

/// A job that is in the list. Once this is dropped, no worker takes part in it any more.
struct Listed<'a> {
    shared: &'a Arc<PoolShared>,
    job: Arc<PoolJob>,
}

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        // No worker starts on it after this. Those that have are waited for.
        self.shared.change(|jobs| jobs.retain(|other| !Arc::ptr_eq(other, &self.job)));
        let mut helpers = lock(&self.job.helpers);
        let begin = Instant::now();
        while helpers.busy > 0 {
            if begin.elapsed() < SPIN {
                drop(helpers);
                std::hint::spin_loop();
                helpers = lock(&self.job.helpers);
            } else {
                helpers = self.job.idle.wait(helpers).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}

impl Drop for PoolHandle {
    fn drop(&mut self) {
        let mut state = lock(&self.shared.state);
        state.over = true;
        let threads = std::mem::take(&mut state.threads);
        drop(state);
        self.shared.posted.fetch_add(1, Ordering::Release);
        self.shared.wake.notify_all();
        for thread in threads {
            // Panics of work have been caught already.
            let _ = thread.join();
        }
    }
}

impl PoolShared {
    /// Changes the list of jobs.
    fn change(&self, act: impl FnOnce(&mut VecDeque<Arc<PoolJob>>)) {
        let mut state = lock(&self.state);
        act(&mut state.jobs);
        self.listed.store(state.jobs.len(), Ordering::Relaxed);
    }

    /// Whether workers must leave a job after a while, because others wait.
    fn is_crowded(&self) -> bool {
        self.listed.load(Ordering::Relaxed) >= 2
    }

    /// Puts a job into the list, and wakes the workers that may take part.
    fn post(self: &Arc<Self>, job: &Arc<PoolJob>) {
        let mut state = lock(&self.state);
        state.jobs.push_back(Arc::clone(job));
        self.listed.store(state.jobs.len(), Ordering::Relaxed);
        if self.is_crowded() {
            self.replace_away(&mut state, Instant::now());
        }
        drop(state);
        self.posted.fetch_add(1, Ordering::Release);
        if self.sleeping.load(Ordering::SeqCst) > 0 {
            self.wake.notify_all();
        }
    }

    /// Replaces each worker that has stayed in one piece of work for too long by a new thread, if a job has
    /// room for it. If no thread can be started, the worker is checked again later: there is less help, and
    /// nothing worse.
    fn replace_away(self: &Arc<Self>, state: &mut PoolState, now: Instant) {
        let most = self.workers.load(Ordering::Relaxed);
        for index in 0..state.assignments.len() {
            let assignments = &mut state.assignments[index];
            let asked = assignments.worker.asked();
            if asked != assignments.asked {
                (assignments.asked, assignments.since) = (asked, now);
                continue;
            }
            let overstays = now.saturating_duration_since(assignments.since) >= OVERSTAY;
            if !overstays || assignments.worker.is_away() || !state.jobs.iter().any(|job| job.has_room(most))
            {
                continue;
            }
            if !self.start(state) {
                return;
            }
            state.assignments[index].worker.send_away();
        }
    }
}

impl PoolJob {
    /// Whether one more worker may take part, of `most` at once.
    fn has_room(&self, most: usize) -> bool {
        lock(&self.helpers).busy < most
    }
}
