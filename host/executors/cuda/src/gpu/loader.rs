//! A thread of the session's own that loads modules and completes links, which takes as long as the compiler
//! does. The thread that reads the ring goes on meanwhile: a synchronize of earlier work does not wait for
//! the compiler.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use vgpu_device::threads;

use crate::driver::context::Context;
use crate::gpu::health::Health;

/// How long a wait for what the thread makes lasts before who waits looks whether it still makes sense.
const PATIENCE: Duration = Duration::from_millis(20);

/// What has been made, by number, and has not been taken over; `None`: it was refused.
#[derive(Debug)]
struct Arrivals<T> {
    made: Mutex<Vec<(u32, Option<T>)>>,
    news: Condvar,
}

impl<T> Default for Arrivals<T> {
    fn default() -> Self {
        Self { made: Mutex::default(), news: Condvar::new() }
    }
}

impl<T> Arrivals<T> {
    fn made(&self) -> MutexGuard<'_, Vec<(u32, Option<T>)>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what has been made.
    fn take(&self) -> Vec<(u32, Option<T>)> {
        std::mem::take(&mut *self.made())
    }

    /// Waits until something has been made, but not for long.
    fn wait(&self) {
        let made = self.made();
        if made.is_empty() {
            drop(self.news.wait_timeout(made, PATIENCE).unwrap_or_else(PoisonError::into_inner));
        }
    }
}

/// What the session has given to the thread, by number, and does not have back.
#[derive(Debug)]
pub(crate) struct Away<T> {
    numbers: HashSet<u32>,
    arrivals: Arc<Arrivals<T>>,
}

impl<T> Default for Away<T> {
    fn default() -> Self {
        Self { numbers: HashSet::new(), arrivals: Arc::default() }
    }
}

impl<T> Away<T> {
    /// How many are away.
    pub(crate) fn len(&self) -> usize {
        self.numbers.len()
    }

    /// Gives something to the thread.
    pub(crate) fn start(&mut self, number: u32) -> Arrival<T> {
        self.numbers.insert(number);
        Arrival { number, brought: None, home: Arc::clone(&self.arrivals) }
    }

    /// Takes over what has come back. Waits for `number` if that is away, unless the session ends: a guest
    /// that does not wait for an answer may name what the answer is about.
    pub(crate) fn settle(&mut self, number: u32, stopping: impl Fn() -> bool) -> Vec<(u32, T)> {
        let mut back = Vec::new();
        while !self.numbers.is_empty() {
            for (number, brought) in self.arrivals.take() {
                self.numbers.remove(&number);
                back.extend(brought.map(|brought| (number, brought)));
            }
            if !self.numbers.contains(&number) || stopping() {
                break;
            }
            self.arrivals.wait();
        }
        back
    }
}

/// Says what became of something that was given to the thread, when it is dropped.
#[derive(Debug)]
pub(crate) struct Arrival<T> {
    number: u32,
    brought: Option<T>,
    home: Arc<Arrivals<T>>,
}

impl<T> Arrival<T> {
    /// It has been made.
    pub(crate) fn bring(&mut self, made: T) {
        self.brought = Some(made);
    }
}

impl<T> Drop for Arrival<T> {
    fn drop(&mut self) {
        self.home.made().push((self.number, self.brought.take()));
        self.home.news.notify_all();
    }
}

/// Something that takes long.
pub(crate) type Task = Box<dyn FnOnce() + Send>;

/// The thread. It does one task after the other, in the order in which they were given.
#[derive(Debug)]
pub(crate) struct Loader {
    /// `None`: the thread has been told to end.
    tasks: Option<Sender<Task>>,
    thread: Option<JoinHandle<()>>,
}

impl Loader {
    /// Starts the thread, in which the context is current. `None`: the system has no more threads.
    pub(crate) fn start(context: &Arc<Context>, health: &Arc<Health>) -> Option<Self> {
        let (tasks, given) = channel::<Task>();
        let (context, health) = (Arc::clone(context), Arc::clone(health));
        let name = format!("cuda-load-{}", health.host().session());
        let run = move || {
            if let Err(error) = context.enter() {
                health.die(1, error.code.0, &error);
            }
            for task in given {
                // Of a session that ends nobody waits for an answer.
                if !health.host().stopping() && catch_unwind(AssertUnwindSafe(task)).is_err() {
                    tracing::error!(session = health.host().session(), "a load or a link panicked");
                }
            }
            context.leave();
        };
        let thread = threads::spawn(name, run).ok()?;
        Some(Self { tasks: Some(tasks), thread: Some(thread) })
    }

    /// Has the thread do something when it has done what it was given before.
    pub(crate) fn give(&self, task: Task) {
        if let Some(tasks) = &self.tasks {
            // The thread takes tasks until this is dropped.
            let _ = tasks.send(task);
        }
    }
}

/// Waits for the task under way.
impl Drop for Loader {
    fn drop(&mut self) {
        drop(self.tasks.take());
        if let Some(thread) = self.thread.take() {
            // Tasks that panic have been logged.
            let _ = thread.join();
        }
    }
}
