//! What a session holds and what it has been sent, as figures for the status report.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crate::session::stats::MessageStats;

/// What a session holds in its executor, for the status report. The executor keeps it up to date.
#[derive(Debug, Default)]
pub struct Gauges {
    /// Bytes of device memory.
    pub allocated: AtomicU64,
    /// Allocations of device memory.
    pub allocations: AtomicU32,
    /// Streams, the default one not counted.
    pub streams: AtomicU32,
    /// Events.
    pub events: AtomicU32,
    /// Modules.
    pub modules: AtomicU32,
    /// GPU contexts; 0 for an executor that has none.
    pub contexts: AtomicU32,
    /// Process id of the session's worker process; 0: it has none.
    pub worker: AtomicU32,
    /// Nanoseconds that the executor has worked for the session ([`crate::SessionHost::worked`]).
    pub(crate) busy_ns: AtomicU64,
}

impl Gauges {
    /// How long the executor has worked for the session.
    pub fn busy(&self) -> Duration {
        Duration::from_nanos(self.busy_ns.load(Ordering::Relaxed))
    }

    /// The same in whole microseconds.
    #[must_use]
    pub fn busy_us(&self) -> u64 {
        self.busy_ns.load(Ordering::Relaxed) / 1000
    }

    /// Raises the time that the executor has worked to `total`, as another process counts it. It never
    /// decreases.
    pub fn raise_busy(&self, total: Duration) {
        let total = u64::try_from(total.as_nanos()).unwrap_or(u64::MAX);
        self.busy_ns.fetch_max(total, Ordering::Relaxed);
    }

    /// The session has ended: it holds nothing.
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
    /// Messages taken from the ring.
    pub(crate) messages: AtomicU64,
    /// Messages carried out.
    pub(crate) done: AtomicU64,
    /// How often the session's thread went to sleep.
    pub(crate) host_sleeps: AtomicU64,
    /// What the messages were.
    pub(crate) stats: MessageStats,
}

impl Counters {
    /// Stores how many messages were taken from the ring, and how many are done.
    pub(crate) fn set(&self, messages: u64, done: u64) {
        self.messages.store(messages, Ordering::Relaxed);
        self.done.store(done, Ordering::Relaxed);
    }
}
