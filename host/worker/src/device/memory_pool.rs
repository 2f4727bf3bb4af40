//! The device's memory, shared by the sessions of all workers. A session holds what its worker reports, and
//! what messages request that the worker has not carried out yet.
//!
//! An allocation is reserved before it is forwarded. A reservation ends when the allocation completes or its
//! worker dies, so that nobody has to return it. Memory that no message requests, such as a module's
//! variables, is reserved when the worker asks for it, until the worker's report includes it. A session also
//! holds what its context costs, from before the message that makes it until the worker is reaped.
//!
//! A worker stores its new amount of memory first, and then that this includes what it was given. In between
//! the memory counts twice. What a guest has freed counts until the driver has unmapped it, which a thread of
//! the worker's does later. So a reservation that is refused only because of such memory waits a while for
//! the workers' reports.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use vgpu_device::{RestoreError, WorkerCount, lock};

use crate::device::saved::{ExecutorState, UsageState};
use crate::shared::status_page::StatusPage;

/// Time for which a session's reservation waits for reports. It is many times what a worker needs between its
/// two stores, and what a driver needs to unmap tens of gigabytes. It is lost by a program that asks for memory
/// which a kernel still uses; the guest waits for its work then, and asks once more.
const SESSION_MOST: Duration = Duration::from_millis(250);

/// Time for which a worker's reservation waits, whose own reports are not read meanwhile.
const WORKER_MOST: Duration = Duration::from_millis(50);

/// Time between two looks at the status pages. A worker does not report that it has carried a message out.
const LOOK: Duration = Duration::from_millis(2);

type Sessions = BTreeMap<u64, Arc<SessionUsage>>;

/// Whether a reservation that reports may make room for waits for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// It does not wait.
    None,
    /// It waits unless the device is paused.
    Session,
    /// It waits even then, because a worker is answered at once.
    Worker,
}

impl Patience {
    const fn limit(self) -> Duration {
        match self {
            Self::None => Duration::ZERO,
            Self::Session => SESSION_MOST,
            Self::Worker => WORKER_MOST,
        }
    }
}

/// The device memory that the sessions of all workers share.
#[derive(Debug)]
pub(crate) struct MemoryPool {
    total: u64,
    /// Unit in which workers take memory, in bytes.
    unit: u64,
    /// Device memory that a context costs, in bytes.
    context_bytes: AtomicU64,
    sessions: Mutex<Sessions>,
    /// Notified when a worker has reported its memory, or is gone, and when the device is paused.
    reported: Condvar,
    /// Whether the device is paused, so that sessions do not wait for reports.
    pausing: AtomicBool,
    next: AtomicU64,
    started: AtomicU64,
    running: AtomicU64,
}

/// The part of the device's memory that one session holds.
#[derive(Debug)]
pub(crate) struct SessionUsage {
    id: u64,
    page: Arc<StatusPage>,
    /// Whether the session holds the memory of a context.
    context: AtomicBool,
    /// Number and bytes of each request that the worker has not carried out, in their order.
    pending: Mutex<VecDeque<(u64, u64)>>,
    /// What the worker itself has asked for and been given.
    asked: Mutex<WorkerRequests>,
}

/// Memory that a worker has asked for itself.
#[derive(Debug, Default)]
struct WorkerRequests {
    /// Number of requests that were granted.
    granted: u64,
    /// Bytes that the worker's report does not include yet.
    bytes: u64,
}

/// Bytes that sessions hold.
#[derive(Clone, Copy, Debug, Default)]
struct HeldMemory {
    certain: u64,
    /// What may be part of what is certain, because a worker has not reported yet that it took what it was
    /// given, and what guests have freed.
    unconfirmed: u64,
}

impl HeldMemory {
    const fn all(self) -> u64 {
        self.certain.saturating_add(self.unconfirmed)
    }
}

impl SessionUsage {
    /// Returns what the session holds beside what its worker reports.
    pub(crate) fn save(&self) -> UsageState {
        // In the order in which `held` locks them.
        let pending = lock(&self.pending).iter().copied().collect();
        let asked = lock(&self.asked);
        UsageState {
            context: self.context.load(Ordering::Relaxed),
            pending,
            granted: asked.granted,
            granted_bytes: asked.bytes,
        }
    }

    fn held(&self, context_bytes: u64) -> HeldMemory {
        let mut pending = lock(&self.pending);
        // Read first, so that the allocations that are read after it include everything that was settled by
        // then.
        let settled = self.page.settled();
        while pending.front().is_some_and(|&(number, _)| number <= settled) {
            pending.pop_front();
        }
        let mut asked = lock(&self.asked);
        if self.page.reserved() >= asked.granted {
            asked.bytes = 0;
        }
        let context = if self.context.load(Ordering::Relaxed) { context_bytes } else { 0 };
        let pending = pending.iter().fold(0, |sum: u64, &(_, bytes)| sum.saturating_add(bytes));
        let allocated = self.page.allocated();
        let freeing = self.page.freeing().min(allocated);
        let kept = allocated - freeing;
        // A report that another thread of the worker makes includes what a message is just allocating.
        let twice = pending.min(kept);
        HeldMemory {
            certain: context.saturating_add(pending.max(kept)),
            unconfirmed: asked.bytes.saturating_add(twice).saturating_add(freeing),
        }
    }
}

impl MemoryPool {
    /// Creates the pool of a device with `total` bytes, whose workers take memory in units of `unit` bytes
    /// and have contexts of `context_bytes`.
    pub(crate) fn new(total: u64, unit: u64, context_bytes: u64) -> Self {
        Self {
            total,
            unit,
            context_bytes: AtomicU64::new(context_bytes),
            sessions: Mutex::default(),
            reported: Condvar::new(),
            pausing: AtomicBool::new(false),
            next: AtomicU64::new(0),
            started: AtomicU64::new(0),
            running: AtomicU64::new(0),
        }
    }

    /// Adds the session of a worker that has started with this status page.
    pub(crate) fn open(&self, page: &Arc<StatusPage>) -> Arc<SessionUsage> {
        self.started.fetch_add(1, Ordering::Relaxed);
        self.add(page, false, VecDeque::new(), WorkerRequests::default())
    }

    fn add(
        &self,
        page: &Arc<StatusPage>,
        context: bool,
        pending: VecDeque<(u64, u64)>,
        asked: WorkerRequests,
    ) -> Arc<SessionUsage> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let page = Arc::clone(page);
        let (context, pending, asked) = (AtomicBool::new(context), Mutex::new(pending), Mutex::new(asked));
        let usage = Arc::new(SessionUsage { id, page, context, pending, asked });
        lock(&self.sessions).insert(id, Arc::clone(&usage));
        self.running.fetch_add(1, Ordering::Relaxed);
        usage
    }

    /// Returns what must be known of the pool beside its sessions.
    pub(crate) fn save(&self) -> ExecutorState {
        let (started, context_bytes) = (self.workers().started, self.context_bytes());
        ExecutorState { started, unit: self.unit, context_bytes }
    }

    /// Checks the saved state of a pool, which must take memory in the same units.
    pub(crate) fn check(&self, state: &ExecutorState) -> Result<(), RestoreError> {
        if state.unit != self.unit {
            return Err(RestoreError::field("unit of device memory", state.unit));
        }
        if state.context_bytes > self.total {
            return Err(RestoreError::field("size of a context", state.context_bytes));
        }
        Ok(())
    }

    /// Takes over a saved state. A context costs what it did, whatever was measured since.
    pub(crate) fn restore(&self, state: &ExecutorState) {
        self.started.store(state.started, Ordering::Relaxed);
        self.context_bytes.store(state.context_bytes, Ordering::Relaxed);
    }

    /// Adds the session of a worker that was running with this status page when the device was saved.
    pub(crate) fn reopen(&self, page: &Arc<StatusPage>, state: &UsageState) -> Arc<SessionUsage> {
        let asked = WorkerRequests { granted: state.granted, bytes: state.granted_bytes };
        self.add(page, state.context, state.pending.iter().copied().collect(), asked)
    }

    /// Removes the session of a worker that was reaped.
    pub(crate) fn close(&self, usage: &SessionUsage) {
        if lock(&self.sessions).remove(&usage.id).is_some() {
            self.running.fetch_sub(1, Ordering::Relaxed);
            self.reported.notify_all();
        }
    }

    /// Takes notice that a worker has reported its memory.
    pub(crate) fn take_report(&self) {
        // With the lock, so that a thread that has not seen the report is waiting already.
        let _sessions = lock(&self.sessions);
        self.reported.notify_all();
    }

    /// Begins or ends a pause of the device.
    pub(crate) fn set_pausing(&self, pausing: bool) {
        self.pausing.store(pausing, Ordering::SeqCst);
        self.take_report();
    }

    /// Returns whether `bytes` fit beside what the sessions hold, and the sessions, so that nobody takes the
    /// memory before the caller does. Waits with `patience` for reports that are due if they may make room.
    fn fits(&self, bytes: u64, patience: Patience) -> (MutexGuard<'_, Sessions>, bool) {
        let end = Instant::now() + patience.limit();
        let mut sessions = lock(&self.sessions);
        loop {
            let held = self.sum(&sessions);
            let fits = bytes <= self.total.saturating_sub(held.all());
            let may_fit = bytes <= self.total.saturating_sub(held.certain);
            let paused = patience == Patience::Session && self.pausing.load(Ordering::SeqCst);
            if fits || !may_fit || paused || Instant::now() >= end {
                return (sessions, fits);
            }
            let waited = self.reported.wait_timeout(sessions, LOOK);
            sessions = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Calls `take` with `bytes` in whole units, if the device has so many. Returns false otherwise.
    fn reserve_units(&self, bytes: u64, patience: Patience, take: impl FnOnce(u64)) -> bool {
        let Some(units) = bytes.checked_next_multiple_of(self.unit) else { return false };
        let (_sessions, fits) = self.fits(units, patience);
        if fits {
            take(units);
        }
        fits
    }

    /// Reserves memory for the message of a number. Returns false if the device has too little, or is paused
    /// while reports are due.
    pub(crate) fn reserve(&self, usage: &SessionUsage, number: u64, bytes: u64, patience: Patience) -> bool {
        self.reserve_units(bytes, patience, |units| lock(&usage.pending).push_back((number, units)))
    }

    /// Reserves memory that a worker asks for. Returns false if the device has too little.
    pub(crate) fn reserve_for_worker(&self, usage: &SessionUsage, bytes: u64) -> bool {
        self.reserve_units(bytes, Patience::Worker, |units| {
            let mut asked = lock(&usage.asked);
            asked.granted += 1;
            asked.bytes += units;
        })
    }

    /// Charges a session for its context, unless it has been. Returns false if the device has too little
    /// memory.
    pub(crate) fn reserve_context(&self, usage: &SessionUsage, patience: Patience) -> bool {
        // Only the session's own thread charges it.
        if usage.context.load(Ordering::Relaxed) {
            return true;
        }
        let (_sessions, fits) = self.fits(self.context_bytes(), patience);
        usage.context.store(fits, Ordering::Relaxed);
        fits
    }

    fn sum(&self, sessions: &Sessions) -> HeldMemory {
        sessions.values().fold(HeldMemory::default(), |sum, usage| {
            let held = usage.held(self.context_bytes());
            let certain = sum.certain.saturating_add(held.certain);
            HeldMemory { certain, unconfirmed: sum.unconfirmed.saturating_add(held.unconfirmed) }
        })
    }

    /// Returns the number of bytes that all sessions hold. It exceeds the total if a worker says that it has
    /// taken more than was reserved.
    pub(crate) fn used(&self) -> u64 {
        self.sum(&lock(&self.sessions)).all()
    }

    /// Returns the number of bytes of host and device memory that workers claim to hold for sessions.
    pub(crate) fn charged(&self) -> u64 {
        let sessions = lock(&self.sessions);
        sessions.values().fold(0, |sum: u64, usage| sum.saturating_add(usage.page.charged()))
    }

    /// Returns the number of bytes that a context costs.
    pub(crate) fn context_bytes(&self) -> u64 {
        self.context_bytes.load(Ordering::Relaxed)
    }

    /// Returns the number of bytes that are free to a session, and of all bytes. A session without a context
    /// cannot have what its context will cost, as on a GPU, where only a process with a context can ask.
    pub(crate) fn info(&self, usage: Option<&SessionUsage>) -> (u64, u64) {
        let context = usage.is_some_and(|usage| usage.context.load(Ordering::Relaxed));
        let coming = if context { 0 } else { self.context_bytes() };
        (self.total.saturating_sub(self.used()).saturating_sub(coming), self.total)
    }

    pub(crate) fn workers(&self) -> WorkerCount {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        WorkerCount { started: load(&self.started), running: load(&self.running) }
    }
}

#[cfg(test)]
mod tests;
