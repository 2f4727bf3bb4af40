//! Worker threads that all sessions share.
//!
//! Jobs wait in a list, and idle workers join them. While other jobs wait, a worker leaves its job after a
//! time slice and joins the one that has waited longest. Each session therefore has its own thread and an
//! equal share of the workers, regardless of the launches of other sessions.
//!
//! A worker can leave a job only between two pieces of work, and a piece may never end. A worker that stays
//! in one piece while other jobs wait is *away*: it stays with its job until the job ends, then exits, and
//! another thread replaces it. The operating system then divides the processors among the threads; no session
//! has more threads than the pool was created for.

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

/// Time during which a worker polls for a new job before it sleeps. Launches often follow each other closely,
/// and waking a thread takes about as long.
const SPIN: Duration = Duration::from_micros(100);

/// Time after which a worker leaves a job for a waiting one. It is long enough to hide the cost of the
/// change.
const SLICE: Duration = Duration::from_millis(2);

/// Time that a worker may stay in one piece of work while other jobs wait. After that, another thread
/// replaces it. Two slices are allowed, so that a job whose pieces are slightly shorter gets at most two
/// turns for each turn of the others.
const OVERSTAY: Duration = Duration::from_millis(4);

/// Work that several threads can share.
pub(crate) trait ParallelWork: Send + Sync {
    /// Executes pieces of the work until none is left to start, or until `stay`, which is called before each
    /// piece, returns false.
    fn run_pieces(&self, stay: &dyn Fn() -> bool);

    /// Returns whether another thread could still start a piece.
    fn is_open(&self) -> bool;
}

/// A pool of worker threads. Clones share the threads, which end with the last clone.
#[derive(Clone)]
pub struct Pool {
    inner: Arc<PoolHandle>,
}

struct PoolHandle {
    shared: Arc<PoolShared>,
}

#[derive(Default)]
struct PoolShared {
    state: Mutex<PoolState>,
    /// Number of jobs posted so far. Spinning workers poll it.
    posted: AtomicU64,
    wake: Condvar,
    sleeping: AtomicUsize,
    /// Length of the list of jobs.
    listed: AtomicUsize,
    /// Number of workers that are not away. It is also the limit of workers in one job.
    workers: AtomicUsize,
}

#[derive(Default)]
struct PoolState {
    /// Jobs in the order in which workers join them: the one that has waited longest comes first.
    jobs: VecDeque<Arc<PoolJob>>,
    /// Workers that are in a job.
    assignments: Vec<Assignment>,
    threads: Vec<JoinHandle<()>>,
    /// Number of threads started so far, which is part of the name of the next one.
    started: usize,
    over: bool,
}

/// A worker that is in a job.
struct Assignment {
    worker: Arc<PoolWorker>,
    /// Number of pieces that the worker had started at the last check; the field below is the time since
    /// which the number has not changed.
    asked: u64,
    since: Instant,
}

struct PoolJob {
    work: Arc<dyn ParallelWork>,
    helpers: Mutex<Helpers>,
    idle: Condvar,
}

/// Number of workers in a job, the caller not included, and whether one of them has panicked.
#[derive(Default)]
struct Helpers {
    busy: usize,
    /// Whether a worker has panicked in the job, so that part of the work is missing.
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
    /// Creates a pool with which a launch runs on up to `threads` threads, including the caller's. The pool
    /// is smaller if the system refuses more threads.
    #[must_use]
    pub fn new(threads: usize) -> Self {
        let shared = Arc::new(PoolShared::default());
        let mut state = lock(&shared.state);
        let started = (1..threads.max(1)).take_while(|_| shared.start(&mut state)).count();
        shared.workers.store(started, Ordering::Relaxed);
        drop(state);
        Self { inner: Arc::new(PoolHandle { shared }) }
    }

    /// Returns the number of threads on which a launch can run, including the caller's.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.inner.shared.workers.load(Ordering::Relaxed) + 1
    }

    /// Returns whether a worker is awake and would join a job at once.
    pub(crate) fn is_awake(&self) -> bool {
        let shared = &self.inner.shared;
        shared.sleeping.load(Ordering::Relaxed) < shared.workers.load(Ordering::Relaxed)
    }

    /// Executes `work` on this thread and on idle workers. Returns when all of it is complete.
    ///
    /// # Panics
    ///
    /// Panics if a worker has panicked, because part of the work is then missing.
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

/// A job in the list. Dropping this removes the job and waits until no worker is in it.
struct Listed<'a> {
    shared: &'a Arc<PoolShared>,
    job: Arc<PoolJob>,
}

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        // No worker joins the job after this. Those that are in it are waited for.
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
    /// Changes the list of jobs and updates its published length.
    fn change(&self, act: impl FnOnce(&mut VecDeque<Arc<PoolJob>>)) {
        let mut state = lock(&self.state);
        act(&mut state.jobs);
        self.listed.store(state.jobs.len(), Ordering::Relaxed);
    }

    /// Returns whether several jobs share the workers, so that workers have to leave theirs after a slice.
    fn is_crowded(&self) -> bool {
        self.listed.load(Ordering::Relaxed) >= 2
    }

    /// Appends a job to the list and wakes sleeping workers.
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

    /// Replaces each worker that has overstayed in one piece of work by a new thread, if a job has room for
    /// it. If no thread can be started, the worker is checked again later.
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
    /// Returns whether another worker may join the job, which may have at most `most` of them.
    fn has_room(&self, most: usize) -> bool {
        lock(&self.helpers).busy < most
    }
}
