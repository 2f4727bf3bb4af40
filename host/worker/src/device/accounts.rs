//! Device memory of all sessions against what the device has. A session has what its worker says it has, and
//! what was asked for by messages that the worker has not carried out yet: so an allocation is charged before
//! it is passed on, and what fails, is freed, or goes with a dead worker is returned without anybody having
//! to say so.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use vgpu_device::WorkerCount;

use crate::shared::board::Board;

/// The device's account.
#[derive(Debug)]
pub(crate) struct Accounts {
    total: u64,
    /// Unit in which workers take memory, in bytes.
    unit: u64,
    sessions: Mutex<BTreeMap<u64, Arc<Account>>>,
    next: AtomicU64,
    started: AtomicU64,
    running: AtomicU64,
}

/// A session's.
#[derive(Debug)]
pub(crate) struct Account {
    id: u64,
    board: Arc<Board>,
    /// Number and bytes of each message that asks for memory, in their order, until it is carried out.
    pending: Mutex<VecDeque<(u64, u64)>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Account {
    fn used(&self, total: u64) -> u64 {
        let mut pending = lock(&self.pending);
        // Read first: what was settled by then is in the allocations that are read after it.
        let settled = self.board.settled();
        while pending.front().is_some_and(|&(number, _)| number <= settled) {
            pending.pop_front();
        }
        let asked = pending.iter().fold(0, |sum: u64, &(_, bytes)| sum.saturating_add(bytes));
        asked.saturating_add(self.board.allocated().min(total))
    }
}

impl Accounts {
    /// A device of `total` bytes, whose workers take memory in units of `unit` bytes.
    pub(crate) fn new(total: u64, unit: u64) -> Self {
        Self {
            total,
            unit,
            sessions: Mutex::default(),
            next: AtomicU64::new(0),
            started: AtomicU64::new(0),
            running: AtomicU64::new(0),
        }
    }

    /// A worker has started, whose board this is.
    pub(crate) fn open(&self, board: &Arc<Board>) -> Arc<Account> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let account = Arc::new(Account { id, board: Arc::clone(board), pending: Mutex::default() });
        lock(&self.sessions).insert(id, Arc::clone(&account));
        self.started.fetch_add(1, Ordering::Relaxed);
        self.running.fetch_add(1, Ordering::Relaxed);
        account
    }

    /// The session's worker is dead and reaped.
    pub(crate) fn close(&self, account: &Account) {
        if lock(&self.sessions).remove(&account.id).is_some() {
            self.running.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Charges the message of a number, unless the device would have too little.
    pub(crate) fn reserve(&self, account: &Account, number: u64, bytes: u64) -> bool {
        let sessions = lock(&self.sessions);
        let free = self.total.saturating_sub(self.sum(&sessions));
        let taken = bytes.checked_next_multiple_of(self.unit).filter(|&taken| taken <= free);
        if let Some(taken) = taken {
            lock(&account.pending).push_back((number, taken));
        }
        taken.is_some()
    }

    fn sum(&self, sessions: &BTreeMap<u64, Arc<Account>>) -> u64 {
        sessions.values().fold(0, |sum, account| sum.saturating_add(account.used(self.total)))
    }

    /// Bytes in use, of all sessions.
    pub(crate) fn used(&self) -> u64 {
        self.sum(&lock(&self.sessions)).min(self.total)
    }

    /// Bytes of host and device memory that workers hold for sessions, as they say.
    pub(crate) fn charged(&self) -> u64 {
        let sessions = lock(&self.sessions);
        sessions.values().fold(0, |sum: u64, account| sum.saturating_add(account.board.charged()))
    }

    /// Free and total bytes.
    pub(crate) fn info(&self) -> (u64, u64) {
        (self.total - self.used(), self.total)
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
    use crate::shared::board::BOARD_BYTES;

    fn board() -> Arc<Board> {
        Arc::new(Board::new(Window::anonymous(BOARD_BYTES).unwrap()))
    }

    fn holds(board: &Board, executed: u64, bytes: u64) {
        let gauges = Gauges::default();
        gauges.allocated.store(bytes, Ordering::Relaxed);
        board.store_gauges(&gauges, bytes);
        board.set_executed(executed);
    }

    #[test]
    fn memory_is_charged_from_before_it_is_asked_for_until_it_is_free() {
        let accounts = Accounts::new(100, 1);
        let (one, two) = (board(), board());
        let (first, second) = (accounts.open(&one), accounts.open(&two));
        assert!(accounts.reserve(&first, 3, 60));
        assert!(!accounts.reserve(&second, 9, 41) && accounts.reserve(&second, 9, 40));
        assert_eq!(accounts.info(), (0, 100));
        // The first is carried out and took a little more; the second failed.
        holds(&one, 3, 64);
        holds(&two, 9, 0);
        assert_eq!(accounts.info(), (36, 100));
        assert!(accounts.reserve(&second, 12, 36));
        holds(&one, 5, 0);
        assert_eq!(accounts.used(), 36);
        accounts.close(&second);
        accounts.close(&second);
        assert_eq!((accounts.used(), accounts.workers()), (0, WorkerCount { started: 2, running: 1 }));
    }

    #[test]
    fn a_worker_that_lies_takes_no_more_than_there_is() {
        let accounts = Accounts::new(100, 1);
        let (one, two) = (board(), board());
        let (_first, second) = (accounts.open(&one), accounts.open(&two));
        holds(&one, u64::MAX, u64::MAX);
        assert_eq!((accounts.used(), accounts.info().0, accounts.charged()), (100, 0, u64::MAX));
        assert!(!accounts.reserve(&second, 1, u64::MAX) && !accounts.reserve(&second, 1, 1));
    }
}
