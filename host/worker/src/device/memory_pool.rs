//! The device's memory, shared by the sessions of all workers. A session holds what its worker reports, and
//! what messages request that the worker has not carried out yet.
//!
//! An allocation is reserved before it is forwarded. A reservation ends when the allocation completes or its
//! worker dies, so that nobody has to return it. Memory that no message requests, such as a module's
//! variables, is reserved when the worker asks for it, until the worker's report includes it. A session also holds what its context costs, from before the
//! message that makes it until the worker is reaped.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use vgpu_device::WorkerCount;

use crate::shared::status_page::StatusPage;

/// The device memory that the sessions of all workers share.
#[derive(Debug)]
pub(crate) struct MemoryPool {
    total: u64,
    /// Unit in which workers take memory, in bytes.
    unit: u64,
    /// Device memory that a context costs, in bytes.
    context_bytes: u64,
    sessions: Mutex<BTreeMap<u64, Arc<Quota>>>,
    next: AtomicU64,
    started: AtomicU64,
    running: AtomicU64,
}

/// The part of the device's memory that one session holds.
#[derive(Debug)]
pub(crate) struct Quota {
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Quota {
    fn used(&self, context_bytes: u64) -> u64 {
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
        let asked = pending.iter().fold(asked.bytes, |sum: u64, &(_, bytes)| sum.saturating_add(bytes));
        let context = if self.context.load(Ordering::Relaxed) { context_bytes } else { 0 };
        asked.saturating_add(context).saturating_add(self.page.allocated())
    }
}

impl MemoryPool {
    /// Creates the pool of a device with `total` bytes, whose workers take memory in units of `unit` bytes
    /// and have contexts of `context_bytes`.
    pub(crate) fn new(total: u64, unit: u64, context_bytes: u64) -> Self {
        Self {
            total,
            unit,
            context_bytes,
            sessions: Mutex::default(),
            next: AtomicU64::new(0),
            started: AtomicU64::new(0),
            running: AtomicU64::new(0),
        }
    }

    /// Adds the session of a worker that has started with this status page.
    pub(crate) fn open(&self, page: &Arc<StatusPage>) -> Arc<Quota> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let page = Arc::clone(page);
        let (context, pending, asked) = (AtomicBool::new(false), Mutex::default(), Mutex::default());
        let quota = Arc::new(Quota { id, page, context, pending, asked });
        lock(&self.sessions).insert(id, Arc::clone(&quota));
        self.started.fetch_add(1, Ordering::Relaxed);
        self.running.fetch_add(1, Ordering::Relaxed);
        quota
    }

    /// Removes the session of a worker that was reaped.
    pub(crate) fn close(&self, quota: &Quota) {
        if lock(&self.sessions).remove(&quota.id).is_some() {
            self.running.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Reserves memory for the message of a number. Returns false if the device has too little.
    pub(crate) fn reserve(&self, quota: &Quota, number: u64, bytes: u64) -> bool {
        let sessions = lock(&self.sessions);
        let free = self.total.saturating_sub(self.sum(&sessions));
        let taken = bytes.checked_next_multiple_of(self.unit).filter(|&taken| taken <= free);
        if let Some(taken) = taken {
            lock(&quota.pending).push_back((number, taken));
        }
        taken.is_some()
    }

    /// Reserves memory that a worker asks for. Returns false if the device has too little.
    pub(crate) fn reserve_for_worker(&self, quota: &Quota, bytes: u64) -> bool {
        let sessions = lock(&self.sessions);
        let free = self.total.saturating_sub(self.sum(&sessions));
        let taken = bytes.checked_next_multiple_of(self.unit).filter(|&taken| taken <= free);
        if let Some(taken) = taken {
            let mut asked = lock(&quota.asked);
            asked.granted += 1;
            asked.bytes += taken;
        }
        taken.is_some()
    }

    /// Charges a session for its context, unless it has been. Returns false if the device has too little
    /// memory.
    pub(crate) fn reserve_context(&self, quota: &Quota) -> bool {
        // Only the session's own thread charges it.
        if quota.context.load(Ordering::Relaxed) {
            return true;
        }
        let sessions = lock(&self.sessions);
        let fits = self.context_bytes <= self.total.saturating_sub(self.sum(&sessions));
        quota.context.store(fits, Ordering::Relaxed);
        fits
    }

    fn sum(&self, sessions: &BTreeMap<u64, Arc<Quota>>) -> u64 {
        sessions.values().fold(0, |sum, quota| sum.saturating_add(quota.used(self.context_bytes)))
    }

    /// Returns the number of bytes that all sessions hold. It exceeds the total if a worker says that it has
    /// taken more than was reserved.
    pub(crate) fn used(&self) -> u64 {
        self.sum(&lock(&self.sessions))
    }

    /// Returns the number of bytes of host and device memory that workers claim to hold for sessions.
    pub(crate) fn charged(&self) -> u64 {
        let sessions = lock(&self.sessions);
        sessions.values().fold(0, |sum: u64, quota| sum.saturating_add(quota.page.charged()))
    }

    /// Returns the number of bytes that a context costs.
    pub(crate) const fn context_bytes(&self) -> u64 {
        self.context_bytes
    }

    /// Returns the number of bytes that are free to a session, and of all bytes. A session without a context
    /// cannot have what its context will cost, as on a GPU, where only a process with a context can ask.
    pub(crate) fn info(&self, quota: Option<&Quota>) -> (u64, u64) {
        let context = quota.is_some_and(|quota| quota.context.load(Ordering::Relaxed));
        let coming = if context { 0 } else { self.context_bytes };
        (self.total.saturating_sub(self.used()).saturating_sub(coming), self.total)
    }

    pub(crate) fn workers(&self) -> WorkerCount {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        WorkerCount { started: load(&self.started), running: load(&self.running) }
    }
}

#[cfg(test)]
mod tests {
    use vgpu_device::{Gauges, Window};

    use super::*;
    use crate::shared::status_page::STATUS_PAGE_BYTES;

    fn page() -> Arc<StatusPage> {
        Arc::new(StatusPage::new(Window::anonymous(STATUS_PAGE_BYTES).unwrap()))
    }

    fn holds(page: &StatusPage, executed: u64, bytes: u64) {
        let gauges = Gauges::default();
        gauges.allocated.store(bytes, Ordering::Relaxed);
        page.store_gauges(&gauges, bytes);
        page.set_executed(executed);
    }

    #[test]
    fn memory_is_charged_from_before_it_is_asked_for_until_it_is_free() {
        let pool = MemoryPool::new(100, 1, 0);
        let (one, two) = (page(), page());
        let (first, second) = (pool.open(&one), pool.open(&two));
        assert!(pool.reserve(&first, 3, 60));
        assert!(!pool.reserve(&second, 9, 41) && pool.reserve(&second, 9, 40));
        assert_eq!(pool.info(None), (0, 100));
        // The first message is carried out and took a little more; the second failed.
        holds(&one, 3, 64);
        holds(&two, 9, 0);
        assert_eq!(pool.info(None), (36, 100));
        assert!(pool.reserve(&second, 12, 36));
        holds(&one, 5, 0);
        assert_eq!(pool.used(), 36);
        pool.close(&second);
        pool.close(&second);
        assert_eq!((pool.used(), pool.workers()), (0, WorkerCount { started: 2, running: 1 }));
    }

    #[test]
    fn what_a_worker_asks_for_is_counted_until_its_report_includes_it() {
        let pool = MemoryPool::new(100, 10, 0);
        let (one, two) = (page(), page());
        let (first, second) = (pool.open(&one), pool.open(&two));
        assert!(pool.reserve_for_worker(&first, 31) && pool.reserve_for_worker(&second, 60));
        assert!(!pool.reserve_for_worker(&second, 1) && !pool.reserve(&first, 1, 1));
        assert!(!pool.reserve_for_worker(&second, u64::MAX));
        holds(&one, 0, 38);
        assert_eq!(pool.used(), 40 + 38 + 60, "its report does not say yet for what");
        one.set_reserved(1);
        assert_eq!(pool.used(), 38 + 60);
        assert!(!pool.reserve_for_worker(&first, 10));
        // A worker that asks anew before it has reported holds both.
        two.set_reserved(1);
        assert!(pool.reserve_for_worker(&first, 10) && pool.reserve_for_worker(&first, 20));
        one.set_reserved(2);
        assert_eq!(pool.used(), 38 + 30);
        pool.close(&first);
        assert_eq!(pool.used(), 0);
    }

    #[test]
    fn a_worker_that_lies_takes_no_more_than_there_is() {
        let pool = MemoryPool::new(100, 1, 0);
        let (one, two) = (page(), page());
        let (_first, second) = (pool.open(&one), pool.open(&two));
        holds(&one, u64::MAX, u64::MAX);
        assert_eq!((pool.used(), pool.info(None).0, pool.charged()), (u64::MAX, 0, u64::MAX));
        assert!(!pool.reserve(&second, 1, u64::MAX) && !pool.reserve(&second, 1, 1));
    }

    #[test]
    fn a_context_is_charged_once_and_comes_back_with_its_worker() {
        let pool = MemoryPool::new(100, 1, 30);
        let (one, two) = (page(), page());
        let (first, second) = (pool.open(&one), pool.open(&two));
        assert_eq!((pool.used(), pool.info(None), pool.info(Some(&first))), (0, (70, 100), (70, 100)));
        assert!(pool.reserve_context(&first) && pool.reserve_context(&first));
        assert_eq!((pool.info(Some(&first)), pool.info(Some(&second))), ((70, 100), (40, 100)));
        assert!(pool.reserve(&first, 1, 45) && !pool.reserve(&first, 2, 26));
        assert!(!pool.reserve_context(&second), "25 are free");
        holds(&one, 1, 40);
        assert!(pool.reserve_context(&second), "30 are free");
        assert_eq!((pool.used(), pool.info(Some(&second))), (100, (0, 100)));
        pool.close(&first);
        assert_eq!(pool.used(), 30);
    }
}
