//! A thread of the session's own that loads modules, which takes as long as the compiler does. The thread
//! that reads the ring goes on meanwhile: a synchronize of earlier work does not wait for the compiler.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::driver::context::Context;
use crate::gpu::health::Health;

/// How long a wait for what is loaded lasts before who waits looks whether it still makes sense.
const PATIENCE: Duration = Duration::from_millis(20);

/// What has been loaded, by number, and has not been taken over; `None`: it was refused.
#[derive(Debug)]
pub(crate) struct Arrivals<T> {
    loaded: Mutex<Vec<(u32, Option<T>)>>,
    news: Condvar,
}

impl<T> Default for Arrivals<T> {
    fn default() -> Self {
        Self { loaded: Mutex::default(), news: Condvar::new() }
    }
}

impl<T> Arrivals<T> {
    fn loaded(&self) -> MutexGuard<'_, Vec<(u32, Option<T>)>> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what has been loaded.
    pub(crate) fn take(&self) -> Vec<(u32, Option<T>)> {
        std::mem::take(&mut *self.loaded())
    }

    /// Waits until something has been loaded, but not for long.
    pub(crate) fn wait(&self) {
        let loaded = self.loaded();
        if loaded.is_empty() {
            drop(self.news.wait_timeout(loaded, PATIENCE).unwrap_or_else(PoisonError::into_inner));
        }
    }
}

/// Says what became of something that was to be loaded, when it is dropped.
#[derive(Debug)]
pub(crate) struct Arrival<T> {
    number: u32,
    brought: Option<T>,
    home: Arc<Arrivals<T>>,
}

impl<T> Arrival<T> {
    /// Of the thing with this number.
    pub(crate) fn of(number: u32, home: &Arc<Arrivals<T>>) -> Self {
        Self { number, brought: None, home: Arc::clone(home) }
    }

    /// It has been loaded.
    pub(crate) fn bring(&mut self, loaded: T) {
        self.brought = Some(loaded);
    }
}

impl<T> Drop for Arrival<T> {
    fn drop(&mut self) {
        self.home.loaded().push((self.number, self.brought.take()));
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
                    tracing::error!(session = health.host().session(), "a module's load panicked");
                }
            }
            context.leave();
        };
        let thread = thread::Builder::new().name(name).spawn(run).ok()?;
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
