//! Resources that a session holds and messages that it has been sent, as figures for the status report.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::saved::state::FiguresState;
use crate::session::stats::MessageStats;

/// Resources that a session holds in its executor, for the status report. The executor updates it.
#[derive(Debug, Default)]
pub struct Gauges {
    /// Number of bytes of device memory that the session holds.
    pub allocated: AtomicU64,
    /// The part of these bytes that the guest has freed, and that is not returned to the device yet.
    pub freeing: AtomicU64,
    /// Number of allocations of device memory.
    pub allocations: AtomicU32,
    /// Number of streams other than the default one.
    pub streams: AtomicU32,
    /// Number of events that the guest has created.
    pub events: AtomicU32,
    /// Number of modules that the session has.
    pub modules: AtomicU32,
    /// Number of GPU contexts, which is 0 for an executor without contexts.
    pub contexts: AtomicU32,
    /// Process id of the session's worker process, or 0 without one.
    pub worker: AtomicU32,
    /// Number of messages that failed in this process for lack of memory, at once or later.
    pub out_of_memory: AtomicU64,
    /// Number of messages that failed in the session's worker process for lack of memory.
    out_of_memory_in_worker: AtomicU64,
    /// Time in nanoseconds that the executor has worked for the session ([`crate::SessionHost::worked`]).
    pub(crate) busy_ns: AtomicU64,
    /// Lock that is held while the allocated bytes are counted and stored.
    counting: Mutex<()>,
    /// Time at which the operation that the executor carries out was started, in nanoseconds ([`now`]), or 0
    /// if there is none.
    working_since: AtomicU64,
    /// Longest time that was reported, in nanoseconds. A report is never below it, though an operation's end
    /// is recorded in two steps.
    reported_ns: AtomicU64,
}

/// Returns the time since the first call in this process, in nanoseconds, which is not 0.
fn now() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    let passed = START.get_or_init(Instant::now).elapsed();
    u64::try_from(passed.as_nanos()).unwrap_or(u64::MAX).max(1)
}

impl Gauges {
    /// Stores the number of bytes of device memory that `count` returns. Threads that allocate and free take
    /// turns, so that no older number replaces a newer one.
    pub fn set_allocated(&self, count: impl FnOnce() -> u64) {
        let _turn = self.counting.lock().unwrap_or_else(PoisonError::into_inner);
        self.allocated.store(count(), Ordering::Relaxed);
    }

    /// Returns how long the executor has worked for the session.
    pub fn busy(&self) -> Duration {
        // Loaded first, so that an operation that ends meanwhile is not counted twice.
        let ended = self.busy_ns.load(Ordering::Acquire);
        let since = self.working_since.load(Ordering::Relaxed);
        let going_on = if since == 0 { 0 } else { now().saturating_sub(since) };
        let total = ended.saturating_add(going_on);
        Duration::from_nanos(self.reported_ns.fetch_max(total, Ordering::Relaxed).max(total))
    }

    /// Returns how long the executor has worked for the session, in microseconds.
    #[must_use]
    pub fn busy_us(&self) -> u64 {
        u64::try_from(self.busy().as_micros()).unwrap_or(u64::MAX)
    }

    /// Records that an operation starts, whose time counts from now on.
    pub(crate) fn start_work(&self) {
        self.working_since.store(now(), Ordering::Relaxed);
    }

    /// Records that an operation has ended, and adds its time.
    pub(crate) fn end_work(&self, time: Duration) {
        self.working_since.store(0, Ordering::Relaxed);
        let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.busy_ns.fetch_add(time, Ordering::Release);
    }

    /// Raises the time that the executor has worked to `total`, which another process counts. The time never
    /// decreases.
    pub fn raise_busy(&self, total: Duration) {
        let total = u64::try_from(total.as_nanos()).unwrap_or(u64::MAX);
        self.busy_ns.fetch_max(total, Ordering::Relaxed);
    }

    /// Returns the number of messages that failed for lack of memory.
    pub(crate) fn all_out_of_memory(&self) -> u64 {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        load(&self.out_of_memory).saturating_add(load(&self.out_of_memory_in_worker))
    }

    /// Raises the number of messages that failed in the worker process for lack of memory. It never
    /// decreases.
    pub fn raise_out_of_memory_in_worker(&self, number: u64) {
        self.out_of_memory_in_worker.fetch_max(number, Ordering::Relaxed);
    }

    /// Adds the time and the counts that no worker process repeats to the session's saved figures.
    pub(crate) fn save(&self, figures: &mut FiguresState) {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        figures.busy_ns = load(&self.busy_ns);
        figures.out_of_memory = load(&self.out_of_memory);
        figures.out_of_memory_in_worker = load(&self.out_of_memory_in_worker);
    }

    /// Takes over the time and the counts that [`Gauges::save`] has stored.
    pub(crate) fn restore(&self, figures: &FiguresState) {
        self.busy_ns.store(figures.busy_ns, Ordering::Relaxed);
        self.out_of_memory.store(figures.out_of_memory, Ordering::Relaxed);
        self.out_of_memory_in_worker.store(figures.out_of_memory_in_worker, Ordering::Relaxed);
    }

    /// Resets what the session held to zero when it has ended.
    pub(crate) fn clear(&self) {
        self.allocated.store(0, Ordering::Relaxed);
        let counts =
            [&self.allocations, &self.streams, &self.events, &self.modules, &self.contexts, &self.worker];
        for gauge in counts {
            gauge.store(0, Ordering::Relaxed);
        }
    }
}

/// A session's counters, for the status report.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Number of messages read from the ring.
    pub(crate) messages: AtomicU64,
    /// Number of messages carried out.
    pub(crate) done: AtomicU64,
    /// Number of times that the session's thread went to sleep.
    pub(crate) host_sleeps: AtomicU64,
    /// Statistics of the messages by kind.
    pub(crate) stats: MessageStats,
    /// Whether the device has added these counters to those of the sessions that have ended.
    pub(crate) are_added: AtomicBool,
}

impl Counters {
    /// Stores the numbers of messages that were read from the ring and carried out.
    pub(crate) fn set(&self, messages: u64, done: u64) {
        self.messages.store(messages, Ordering::Relaxed);
        self.done.store(done, Ordering::Relaxed);
    }
}
