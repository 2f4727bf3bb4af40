//! The thread of one worker of the pool.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::thread::Builder;
use std::time::Instant;

use crate::machine::keep_subnormals;

use super::{Assignment, PoolJob, PoolShared, PoolState, SLICE, SPIN, lock};

/// State of a worker that other threads read.
#[derive(Default)]
pub(super) struct PoolWorker {
    /// Number of pieces that the worker has started. Only the worker writes it.
    asked: AtomicU64,
    /// Whether another thread has replaced this worker, which then stays with its job and ends with it.
    away: AtomicBool,
}

impl PoolWorker {
    pub(super) fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }

    pub(super) fn is_away(&self) -> bool {
        self.away.load(Ordering::Relaxed)
    }

    pub(super) fn send_away(&self) {
        self.away.store(true, Ordering::Relaxed);
    }
}

/// Next action of a worker that is in no job.
enum NextAction {
    Help(Arc<PoolJob>, Instant),
    Wait,
    End,
}

impl PoolShared {
    /// Starts a worker thread. Returns false if the system refused it.
    pub(super) fn start(self: &Arc<Self>, state: &mut PoolState) -> bool {
        for thread in state.threads.extract_if(.., |thread| thread.is_finished()) {
            // The thread has ended, and panics of work have been caught already.
            let _ = thread.join();
        }
        state.started += 1;
        let shared = Arc::clone(self);
        let thread = Builder::new().name(format!("simt-{}", state.started)).spawn(move || shared.serve());
        let started = thread.is_ok();
        state.threads.extend(thread);
        started
    }

    /// Runs a worker, which joins jobs until the pool ends or another thread replaces it. This is the body of
    /// its thread.
    fn serve(self: &Arc<Self>) {
        // A thread that replaces another is often started between two blocks of machine code.
        keep_subnormals();
        let me = Arc::new(PoolWorker::default());
        loop {
            let posted = self.posted.load(Ordering::Acquire);
            match self.next(&me) {
                NextAction::Help(job, begin) => self.help(&me, &job, begin),
                NextAction::Wait => self.wait(posted),
                NextAction::End => return,
            }
        }
    }

    /// Leaves the last job and finds the next action of a worker.
    fn next(self: &Arc<Self>, me: &Arc<PoolWorker>) -> NextAction {
        let mut state = lock(&self.state);
        state.assignments.retain(|assignments| !Arc::ptr_eq(&assignments.worker, me));
        if state.over || me.is_away() {
            return NextAction::End;
        }
        let most = self.workers.load(Ordering::Relaxed);
        let Some(index) = state.jobs.iter().position(|job| job.has_room(most)) else {
            return NextAction::Wait;
        };
        let Some(job) = state.jobs.remove(index) else { return NextAction::Wait };
        lock(&job.helpers).busy += 1;
        // The job goes behind all others, so that the next worker takes up another.
        state.jobs.push_back(Arc::clone(&job));
        let now = Instant::now();
        // The worker asks once before its first piece.
        state.assignments.push(Assignment { worker: Arc::clone(me), asked: me.asked() + 1, since: now });
        if self.is_crowded() {
            self.replace_away(&mut state, now);
        }
        NextAction::Help(job, now)
    }

    /// Executes pieces of a job until none is left or the worker must leave.
    fn help(&self, me: &PoolWorker, job: &Arc<PoolJob>, begin: Instant) {
        let stay = || {
            me.asked.store(me.asked() + 1, Ordering::Relaxed);
            !self.is_crowded() || begin.elapsed() < SLICE || me.is_away()
        };
        let done = catch_unwind(AssertUnwindSafe(|| job.work.run_pieces(&stay)));
        let open = done.is_ok() && job.work.is_open();
        let mut helpers = lock(&job.helpers);
        helpers.busy -= 1;
        helpers.panicked |= done.is_err();
        if helpers.busy == 0 {
            job.idle.notify_all();
        }
        drop(helpers);
        if !open {
            self.change(|jobs| jobs.retain(|other| !Arc::ptr_eq(other, job)));
        }
    }

    /// Waits until more than `posted` jobs have been posted, or the pool ends. Polls for [`SPIN`] before it
    /// sleeps.
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
