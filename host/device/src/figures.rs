//! Figures of a device: what its sessions hold, and the sums of what they have done. Whoever shares a GPU
//! among VMs reads them.
//!
//! Sums include the sessions that have ended, so they never decrease. They are read from the counters that
//! sessions keep anyway.

use std::ops::AddAssign;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use crate::executor::SessionError;
use crate::saved::state::EndedState;
use crate::session::host::SessionHost;
use crate::sync::lock;

/// Work of one session, or of all sessions of a device together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkDone {
    /// Time during which each session had work on the GPU, added up. Sessions that work at the same time are
    /// each counted.
    pub busy: Duration,
    /// Kernels and operations of libraries that were launched, those of graphs included.
    pub launches: u64,
    /// Bytes that were copied to the device.
    pub copied_in: u64,
    /// Bytes that were copied from the device.
    pub copied_out: u64,
    /// Number of messages that failed for lack of memory.
    pub out_of_memory: u64,
}

impl AddAssign for WorkDone {
    fn add_assign(&mut self, more: Self) {
        self.busy = self.busy.saturating_add(more.busy);
        for (sum, more) in [
            (&mut self.launches, more.launches),
            (&mut self.copied_in, more.copied_in),
            (&mut self.copied_out, more.copied_out),
            (&mut self.out_of_memory, more.out_of_memory),
        ] {
            *sum = sum.saturating_add(more);
        }
    }
}

/// Sessions that ended although their guest did not ask for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LostSessions {
    /// Sessions whose guest broke the contract.
    pub violation: u64,
    /// Sessions whose worker died, or that the executor lost otherwise.
    pub worker: u64,
    /// Sessions that an operator ended.
    pub operator: u64,
}

/// Figures of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceFigures {
    /// UUID that the guest sees.
    pub uuid: [u8; 16],
    /// Bytes of device memory that are in use.
    pub used: u64,
    /// Contexts that the sessions have.
    pub contexts: u64,
    /// Sessions that are attached, have failed or are ending.
    pub sessions: u64,
    /// What all sessions have done since the device started.
    pub done: WorkDone,
    /// Sessions that were lost since the device started.
    pub lost: LostSessions,
}

/// Sums of a device's sessions that have ended.
#[derive(Debug, Default)]
pub(crate) struct EndedSessions {
    done: Mutex<WorkDone>,
    violation: AtomicU64,
    worker: AtomicU64,
    operator: AtomicU64,
}

impl EndedSessions {
    /// Adds the work of a session that has ended, and marks its counters as added.
    pub(crate) fn add(&self, host: &SessionHost) {
        let mut done = lock(&self.done);
        *done += host.work_done();
        host.counters().are_added.store(true, Ordering::Relaxed);
    }

    /// Counts a session that ended with an error.
    pub(crate) fn count_loss(&self, error: &SessionError) {
        let lost = match error {
            SessionError::Violation(_) => &self.violation,
            SessionError::Lost(_) | SessionError::OutOfMemory(_) | SessionError::Paused => &self.worker,
        };
        lost.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a session that an operator has ended.
    pub(crate) fn count_end(&self) {
        self.operator.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns all sums as saved state.
    pub(crate) fn save(&self) -> EndedState {
        let (done, lost) = (*self.done(), self.lost());
        EndedState {
            busy_ns: u64::try_from(done.busy.as_nanos()).unwrap_or(u64::MAX),
            launches: done.launches,
            copied_in: done.copied_in,
            copied_out: done.copied_out,
            out_of_memory: done.out_of_memory,
            violation: lost.violation,
            worker: lost.worker,
            operator: lost.operator,
        }
    }

    /// Makes the sums of a saved device.
    pub(crate) fn restore(state: EndedState) -> Self {
        let done = WorkDone {
            busy: Duration::from_nanos(state.busy_ns),
            launches: state.launches,
            copied_in: state.copied_in,
            copied_out: state.copied_out,
            out_of_memory: state.out_of_memory,
        };
        Self {
            done: Mutex::new(done),
            violation: state.violation.into(),
            worker: state.worker.into(),
            operator: state.operator.into(),
        }
    }

    /// Locks the sum of the work. While it is locked, no session's work is added to it.
    pub(crate) fn done(&self) -> MutexGuard<'_, WorkDone> {
        lock(&self.done)
    }

    pub(crate) fn lost(&self) -> LostSessions {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        LostSessions {
            violation: load(&self.violation),
            worker: load(&self.worker),
            operator: load(&self.operator),
        }
    }
}

impl SessionHost {
    /// Returns what the session has done so far.
    pub(crate) fn work_done(&self) -> WorkDone {
        let (gauges, stats) = (self.gauges(), &self.counters().stats);
        if let Some(remote) = self.remote() {
            remote.show(gauges);
        }
        let (copied_in, copied_out) = stats.copied();
        WorkDone {
            busy: gauges.busy(),
            launches: stats.launches(),
            copied_in,
            copied_out,
            out_of_memory: gauges.all_out_of_memory(),
        }
    }
}
