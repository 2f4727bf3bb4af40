//! Worker threads, shared by all sessions. Work is put into a list; whoever is free takes part in what is there.

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a worker looks for new work before it sleeps: launches often follow each other at once, and to wake a thread
/// takes as long.
const SPIN: Duration = Duration::from_micros(100);

/// Something that several threads can do together.
pub(crate) trait Work: Send + Sync {
    /// Takes part until nothing is left to be begun.
    fn work(&self);
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
}

#[derive(Default)]
struct State {
    jobs: Vec<Arc<Job>>,
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
        lock(&shared.state).jobs.push(Arc::clone(&job));
        shared.posted.fetch_add(1, Ordering::Release);
        if shared.sleeping.load(Ordering::SeqCst) > 0 {
            shared.wake.notify_all();
        }
        job.work.work();
        // Nobody begins after this; those who did are waited for.
        lock(&shared.state).jobs.retain(|other| !Arc::ptr_eq(other, &job));
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
    fn serve(&self) {
        loop {
            let posted = self.posted.load(Ordering::Acquire);
            // Join what is there; new work of others may come meanwhile.
            let job = {
                let state = lock(&self.state);
                if state.over {
                    return;
                }
                let job = state.jobs.first().map(Arc::clone);
                if let Some(job) = &job {
                    *lock(&job.busy) += 1;
                }
                job
            };
            if let Some(job) = job {
                job.work.work();
                let mut busy = lock(&job.busy);
                *busy -= 1;
                if *busy == 0 {
                    job.idle.notify_all();
                }
                drop(busy);
                // All of it is begun: others in the list are next.
                lock(&self.state).jobs.retain(|other| !Arc::ptr_eq(other, &job));
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
