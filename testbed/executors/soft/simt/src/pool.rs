//! Worker threads, shared by all sessions. Work is put into a list; whoever is free takes part in what is there, by turns: a worker
//! leaves work that others wait beside after a while, and takes up what has waited longest. So each session has its own thread and
//! an equal share of the workers, whatever the others launch.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a worker looks for new work before it sleeps: launches often follow each other at once, and to wake a thread
/// takes as long.
const SPIN: Duration = Duration::from_micros(100);

/// How long a worker takes part in one work at least before it goes on to another that waits: long enough that to change costs
/// nothing, short beside what anybody waits for.
const SLICE: Duration = Duration::from_millis(2);

/// Something that several threads can do together.
pub(crate) trait Work: Send + Sync {
    /// Takes part until nothing is left to be begun, or `stay`, asked between pieces, says no.
    fn work(&self, stay: &dyn Fn() -> bool);

    /// Whether something is left to be begun.
    fn is_open(&self) -> bool;
}

/// Worker threads. Clones are the same pool; it ends with the last of them.
#[derive(Clone)]
pub struct Pool {
    inner: Arc<Handle>,
}

struct Handle {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

struct Shared {
    state: Mutex<State>,
    /// Grows with each piece of work: what spinning workers look at.
    posted: AtomicU64,
    wake: Condvar,
    sleeping: AtomicUsize,
    /// How many jobs are in the list.
    listed: AtomicUsize,
}

#[derive(Default)]
struct State {
    /// The one that workers have left alone longest comes first.
    jobs: VecDeque<Arc<Job>>,
    over: bool,
}

struct Job {
    work: Arc<dyn Work>,
    /// Workers that take part.
    busy: Mutex<usize>,
    idle: Condvar,
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
        });
        let worker = |index: usize| {
            let shared = Arc::clone(&shared);
            std::thread::Builder::new().name(format!("simt-{index}")).spawn(move || shared.serve()).ok()
        };
        let workers = (1..threads.max(1)).map_while(worker).collect();
        Self { inner: Arc::new(Handle { shared, workers }) }
    }

    /// How many threads a launch runs on.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.inner.workers.len() + 1
    }

    /// Whether some worker is awake, and takes work up at once.
    pub(crate) fn is_awake(&self) -> bool {
        self.inner.shared.sleeping.load(Ordering::Relaxed) < self.inner.workers.len()
    }

    /// Does `work` with the help of workers. Returns when all of it is done.
    pub(crate) fn run(&self, work: Arc<dyn Work>) {
        let shared = &self.inner.shared;
        let job = Arc::new(Job { work, busy: Mutex::new(0), idle: Condvar::new() });
        shared.change(|jobs| jobs.push_back(Arc::clone(&job)));
        shared.posted.fetch_add(1, Ordering::Release);
        if shared.sleeping.load(Ordering::SeqCst) > 0 {
            shared.wake.notify_all();
        }
        job.work.work(&|| true);
        // Nobody begins after this; those who did are waited for.
        shared.change(|jobs| jobs.retain(|other| !Arc::ptr_eq(other, &job)));
        let mut busy = lock(&job.busy);
        let begin = Instant::now();
        while *busy > 0 {
            if begin.elapsed() < SPIN {
                drop(busy);
                std::hint::spin_loop();
                busy = lock(&job.busy);
            } else {
                busy = job.idle.wait(busy).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        lock(&self.shared.state).over = true;
        self.shared.posted.fetch_add(1, Ordering::Release);
        self.shared.wake.notify_all();
        for worker in self.workers.drain(..) {
            // A worker that panicked has said so; there is nothing to add.
            let _ = worker.join();
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

    fn serve(&self) {
        loop {
            let posted = self.posted.load(Ordering::Acquire);
            // Join what is there; new work of others may come meanwhile.
            let job = {
                let mut state = lock(&self.state);
                if state.over {
                    return;
                }
                let job = state.jobs.pop_front();
                if let Some(job) = &job {
                    *lock(&job.busy) += 1;
                    // Behind all others: the next worker takes up another.
                    state.jobs.push_back(Arc::clone(job));
                }
                job
            };
            if let Some(job) = job {
                let begin = Instant::now();
                job.work.work(&|| self.listed.load(Ordering::Relaxed) < 2 || begin.elapsed() < SLICE);
                let mut busy = lock(&job.busy);
                *busy -= 1;
                if *busy == 0 {
                    job.idle.notify_all();
                }
                drop(busy);
                if !job.work.is_open() {
                    self.change(|jobs| jobs.retain(|other| !Arc::ptr_eq(other, &job)));
                }
                continue;
            }
            self.wait(posted);
        }
    }

    /// Waits until more than `posted` was posted.
    fn wait(&self, posted: u64) {
        let begin = Instant::now();
        while begin.elapsed() < SPIN {
            if self.posted.load(Ordering::Acquire) != posted {
                return;
            }
            std::hint::spin_loop();
        }
        let mut state = lock(&self.state);
        self.sleeping.fetch_add(1, Ordering::SeqCst);
        while self.posted.load(Ordering::SeqCst) == posted && !state.over {
            state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        self.sleeping.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts the pieces of it that each thread does; nothing of it ends before it is told to.
    struct Endless {
        by_worker: AtomicUsize,
        over: Arc<AtomicUsize>,
    }

    impl Work for Endless {
        fn work(&self, stay: &dyn Fn() -> bool) {
            while self.is_open() && stay() {
                let worker = std::thread::current().name().is_some_and(|name| name.starts_with("simt-"));
                self.by_worker.fetch_add(usize::from(worker), Ordering::Relaxed);
                std::thread::yield_now();
            }
        }

        fn is_open(&self) -> bool {
            self.over.load(Ordering::Relaxed) == 0
        }
    }

    /// Issue 13, done when good sessions have their share: the one worker helps each of several launches without an end.
    #[test]
    fn a_worker_goes_on_to_work_that_waits() {
        let pool = Pool::new(2);
        let over = Arc::new(AtomicUsize::new(0));
        let all: Vec<Arc<Endless>> = (0..3)
            .map(|_| Arc::new(Endless { by_worker: AtomicUsize::new(0), over: Arc::clone(&over) }))
            .collect();
        std::thread::scope(|scope| {
            for work in &all {
                let (pool, work) = (pool.clone(), Arc::clone(work));
                scope.spawn(move || pool.run(work));
            }
            let helped = |work: &Arc<Endless>| work.by_worker.load(Ordering::Relaxed);
            let all_helped = |times: usize| all.iter().all(|work| helped(work) >= times);
            let deadline = Instant::now() + Duration::from_mins(1);
            while !all_helped(1) && Instant::now() < deadline {
                std::thread::yield_now();
            }
            // Each of them again: the worker comes back.
            let before: Vec<usize> = all.iter().map(helped).collect();
            while !all.iter().zip(&before).all(|(work, before)| helped(work) > *before)
                && Instant::now() < deadline
            {
                std::thread::yield_now();
            }
            let after: Vec<usize> = all.iter().map(helped).collect();
            over.store(1, Ordering::Relaxed);
            assert!(before.iter().all(|count| *count > 0), "not all are helped: {before:?}");
            assert!(
                after.iter().zip(&before).all(|(after, before)| after > before),
                "{before:?}, then {after:?}"
            );
        });
    }
}
