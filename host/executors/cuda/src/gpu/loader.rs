//! The loader: a thread of the session that loads modules and completes links, which takes as long as the
//! compiler. The thread that reads the ring continues meanwhile, so that a synchronize of earlier work does
//! not wait for the compiler.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use vgpu_device::{TrackedGuard, lock_tracked, threads};

use crate::driver::context::DriverContext;
use crate::gpu::health::Health;
use crate::gpu::holds::HoldsOpen;

/// Time between two checks whether a wait for the loader is still useful.
const PATIENCE: Duration = Duration::from_millis(20);

/// Results that were not collected yet, by number. `None` stands for a refusal.
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
    fn made(&self) -> TrackedGuard<'_, Vec<(u32, Option<T>)>> {
        lock_tracked(&self.made)
    }

    /// Removes and returns all results.
    fn drain(&self) -> Vec<(u32, Option<T>)> {
        std::mem::take(&mut *self.made())
    }

    /// Waits a short time for a result.
    fn wait(&self) {
        let made = self.made();
        if made.is_empty() {
            drop(made.wait_timeout(&self.news, PATIENCE));
        }
    }
}

/// Objects by number that the loader works on and that the session does not have.
#[derive(Debug)]
pub(crate) struct PendingTasks<T> {
    numbers: HashSet<u32>,
    arrivals: Arc<Arrivals<T>>,
}

impl<T> Default for PendingTasks<T> {
    fn default() -> Self {
        Self { numbers: HashSet::new(), arrivals: Arc::default() }
    }
}

impl<T> PendingTasks<T> {
    /// Returns the number of objects that the loader works on.
    pub(crate) fn len(&self) -> usize {
        self.numbers.len()
    }

    /// Records that the loader works on an object, and returns what delivers its result.
    pub(crate) fn start(&mut self, number: u32) -> TaskResult<T> {
        self.numbers.insert(number);
        TaskResult { number, brought: None, home: Arc::clone(&self.arrivals) }
    }

    /// Collects the results. Waits for `number` if the loader has it, unless the session ends: a guest may
    /// name an object before it has the answer about it.
    pub(crate) fn collect(&mut self, number: u32, stopping: impl Fn() -> bool) -> Vec<(u32, T)> {
        let mut back = Vec::new();
        while !self.numbers.is_empty() {
            for (number, brought) in self.arrivals.drain() {
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

/// Delivers the result of a task when it is dropped: the object, or a refusal if none was set.
#[derive(Debug)]
pub(crate) struct TaskResult<T> {
    number: u32,
    brought: Option<T>,
    home: Arc<Arrivals<T>>,
}

impl<T> TaskResult<T> {
    /// Sets the object that is delivered.
    pub(crate) fn bring(&mut self, made: T) {
        self.brought = Some(made);
    }
}

impl<T> Drop for TaskResult<T> {
    fn drop(&mut self) {
        self.home.made().push((self.number, self.brought.take()));
        self.home.news.notify_all();
    }
}

/// A task that the loader's thread runs.
pub(crate) type LoaderTask = Box<dyn FnOnce() + Send>;

/// The loader's thread. It runs tasks in the order in which they were enqueued.
#[derive(Debug)]
pub(crate) struct Loader {
    /// Queue of tasks, or `None` while the thread ends.
    tasks: Option<Sender<LoaderTask>>,
    /// Number of values that the thread is to drop and has not dropped.
    undropped: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

impl Loader {
    /// Starts the thread, named after its `purpose`, with the context current in it. Returns `None` if the
    /// system has no more threads.
    pub(crate) fn start(context: &Arc<DriverContext>, health: &Arc<Health>, purpose: &str) -> Option<Self> {
        let (tasks, given) = channel::<LoaderTask>();
        let (context, health) = (Arc::clone(context), Arc::clone(health));
        let name = format!("cuda-{purpose}-{}", health.host().session());
        let run = move || {
            if let Err(error) = context.enter() {
                health.lose_context(1, error.code.0, &error);
            }
            for task in given {
                // Nobody waits for an answer of a session that ends.
                if !health.host().stopping() && catch_unwind(AssertUnwindSafe(task)).is_err() {
                    tracing::error!(session = health.host().session(), "a load or a link panicked");
                }
            }
            context.leave();
        };
        let thread = threads::spawn(name, run).ok()?;
        Some(Self { tasks: Some(tasks), undropped: Arc::default(), thread: Some(thread) })
    }

    /// Enqueues a task for the loader's thread.
    pub(crate) fn enqueue_task(&self, task: LoaderTask) {
        if let Some(tasks) = &self.tasks {
            // The thread receives tasks until this value is dropped, so this does not fail.
            let _ = tasks.send(task);
        }
    }
}

/// A value that the thread of a [`Loader`] drops, because the drop makes calls of the driver that may wait
/// for other work. Driver 580.159.04 ends no registration and unloads no module while a stream waits for the
/// host.
#[derive(Debug)]
pub(crate) struct BackgroundDrop<T: Send + 'static> {
    value: Option<T>,
    thread: Option<(Sender<LoaderTask>, Arc<AtomicUsize>)>,
    aside: Aside,
}

/// Condition under which the thread drops a value. Otherwise the value is dropped in place.
#[derive(Debug)]
enum Aside {
    Always,
    /// While the thread has others to drop, or a stream is held for which the drop would wait.
    InOrder(Option<HoldsOpen>),
}

impl<T: Send + 'static> BackgroundDrop<T> {
    /// Wraps a value, which the loader's thread drops. Without a loader it is dropped in place.
    pub(crate) fn new(value: T, loader: Option<&Loader>) -> Self {
        let thread = loader.and_then(|loader| Some((loader.tasks.clone()?, Arc::clone(&loader.undropped))));
        Self { value: Some(value), thread, aside: Aside::Always }
    }

    /// Has the thread drop the value only while it has other values still to drop, or while a stream is held
    /// for which the drop would wait.
    pub(crate) fn in_order(mut self, waits: Option<HoldsOpen>) -> Self {
        self.aside = Aside::InOrder(waits);
        self
    }
}

impl<T: Send + 'static> Drop for BackgroundDrop<T> {
    fn drop(&mut self) {
        let (Some(value), Some((tasks, undropped))) = (self.value.take(), self.thread.take()) else { return };
        if let Aside::InOrder(waits) = &self.aside
            && undropped.load(Ordering::Acquire) == 0
            && !waits.as_ref().is_some_and(HoldsOpen::any)
        {
            return drop(value);
        }
        undropped.fetch_add(1, Ordering::AcqRel);
        // The thread receives until all senders are gone, so this does not fail.
        let _ = tasks.send(Box::new(move || {
            let _counted = Counted(undropped);
            drop(value);
        }));
    }
}

/// Counts a value as dropped, also where the drop panics.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Dropping the loader waits for the tasks that it has, and for values that it is to drop.
impl Drop for Loader {
    fn drop(&mut self) {
        drop(self.tasks.take());
        if let Some(thread) = self.thread.take() {
            // Tasks that panicked have been logged.
            let _ = thread.join();
        }
    }
}
