//! Worker threads, shared by all sessions. Work is put into a list; whoever is free takes part in what is there, by turns: a worker
//! leaves work that others wait beside after a while, and takes up what has waited longest. So each session has its own thread and
//! an equal share of the workers, whatever the others launch.
//!
//! A worker can leave work only between two pieces of it, and a piece may have no end. A worker that stays in one piece while others wait
//! is away: it belongs to that work from then on, ends with it, and another thread stands in for it. The operating system then shares the
//! processors out among threads, of which no session has more than the pool was made for.

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

use worker::Worker;

/// How long a worker looks for new work before it sleeps: launches often follow each other at once, and to wake a thread
/// takes as long.
const SPIN: Duration = Duration::from_micros(100);

/// How long a worker takes part in one work at least before it goes on to another that waits: long enough that to change costs
/// nothing, short beside what anybody waits for.
const SLICE: Duration = Duration::from_millis(2);

/// How long a worker may stay in one piece of work while others wait before another thread stands in for it. Two slices, so that
/// pieces that are just shorter than this get their work no more than two turns for each turn of the others.
const OVERSTAY: Duration = Duration::from_millis(4);

/// Something that several threads can do together.
pub(crate) trait Work: Send + Sync {
    /// Takes part until nothing is left to be begun, or `stay`, asked before each piece, says no.
    fn work(&self, stay: &dyn Fn() -> bool);

    /// Whether something is left to be begun by one more thread.
    fn is_open(&self) -> bool;
}

/// Worker threads. Clones are the same pool; it ends with the last of them.
#[derive(Clone)]
pub struct Pool {
    inner: Arc<Handle>,
}

struct Handle {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    /// Grows with each piece of work: what spinning workers look at.
    posted: AtomicU64,
    wake: Condvar,
    sleeping: AtomicUsize,
    /// How many jobs are in the list.
    listed: AtomicUsize,
    /// How many workers there are that are not away, and how many may take part in one job.
    workers: AtomicUsize,
}

#[derive(Default)]
struct State {
    /// The one that workers have left alone longest comes first.
    jobs: VecDeque<Arc<Job>>,
    /// Workers that take part in a job.
    inside: Vec<Inside>,
    threads: Vec<JoinHandle<()>>,
    /// How many threads were started: each has a number of its own.
    started: usize,
    over: bool,
}

/// A worker that takes part in a job.
struct Inside {
    worker: Arc<Worker>,
    /// How many pieces it had asked for when somebody looked, and since when that has been so.
    asked: u64,
    since: Instant,
}

struct Job {
    work: Arc<dyn Work>,
    helpers: Mutex<Helpers>,
    idle: Condvar,
}

/// Workers that take part in a job.
#[derive(Default)]
struct Helpers {
    busy: usize,
    /// One of them has panicked: what it did is not done.
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
    /// A pool with which a launch runs on up to `threads` threads: the caller's is one of them. Fewer if the system
    /// has no more.
    #[must_use]
    pub fn new(threads: usize) -> Self {
        let shared = Arc::new(Shared {
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
        Self { inner: Arc::new(Handle { shared }) }
    }

    /// How many threads a launch runs on.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.inner.shared.workers.load(Ordering::Relaxed) + 1
    }

    /// Whether some worker is awake, and takes work up at once.
    pub(crate) fn is_awake(&self) -> bool {
        let shared = &self.inner.shared;
        shared.sleeping.load(Ordering::Relaxed) < shared.workers.load(Ordering::Relaxed)
    }

    /// Does `work` with the help of workers. Returns when all of it is done.
    ///
    /// # Panics
    /// A worker has panicked, so that something of the work is not done.
    pub(crate) fn run(&self, work: Arc<dyn Work>) {
        let shared = &self.inner.shared;
        let listed =
            Listed { shared, job: Arc::new(Job { work, helpers: Mutex::default(), idle: Condvar::new() }) };
        shared.post(&listed.job);
        let looked = Cell::new(None::<Instant>);
        listed.job.work.work(&|| {
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

/// A job that is in the list. When this is dropped, nobody takes part in it any more.
struct Listed<'a> {
    shared: &'a Arc<Shared>,
    job: Arc<Job>,
}

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        // Nobody begins after this; those who did are waited for.
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

impl Drop for Handle {
    fn drop(&mut self) {
        let mut state = lock(&self.shared.state);
        state.over = true;
        let threads = std::mem::take(&mut state.threads);
        drop(state);
        self.shared.posted.fetch_add(1, Ordering::Release);
        self.shared.wake.notify_all();
        for thread in threads {
            // Panics of work have been caught.
            let _ = thread.join();
        }
    }
}

impl Shared {
    /// Changes the list.
    fn change(&self, act: impl FnOnce(&mut VecDeque<Arc<Job>>)) {
        let mut state = lock(&self.state);
        act(&mut state.jobs);
        self.listed.store(state.jobs.len(), Ordering::Relaxed);
    }

    /// Whether workers are to leave a job after a while, since others wait.
    fn is_crowded(&self) -> bool {
        self.listed.load(Ordering::Relaxed) >= 2
    }

    /// Puts a job into the list, and wakes who may take part.
    fn post(self: &Arc<Self>, job: &Arc<Job>) {
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

    /// Has a thread stand in for each worker that has stayed in one piece of work for too long, as far as there is a job that may have
    /// another. Where none can be started the worker is looked at again later: there is less help, no more.
    fn replace_away(self: &Arc<Self>, state: &mut State, now: Instant) {
        let most = self.workers.load(Ordering::Relaxed);
        for index in 0..state.inside.len() {
            let inside = &mut state.inside[index];
            let asked = inside.worker.asked();
            if asked != inside.asked {
                (inside.asked, inside.since) = (asked, now);
                continue;
            }
            let overstays = now.saturating_duration_since(inside.since) >= OVERSTAY;
            if !overstays || inside.worker.is_away() || !state.jobs.iter().any(|job| job.has_room(most)) {
                continue;
            }
            if !self.start(state) {
                return;
            }
            state.inside[index].worker.send_away();
        }
    }
}

impl Job {
    /// Whether one more worker may take part, where `most` may.
    fn has_room(&self, most: usize) -> bool {
        lock(&self.helpers).busy < most
    }
}
