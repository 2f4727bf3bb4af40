//! Distributes the tiles and strips of a call to threads.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use vgpu_ptx::Halt;

use super::error::GemmError;

/// Number of floating-point operations that are worth a thread: about ten times the cost of starting one.
const OPERATIONS: u64 = 20_000_000;

/// The threads that execute a call, and its interrupt.
#[derive(Clone, Copy)]
pub struct Workers<'a> {
    /// Largest number of threads of the call, including the caller's.
    pub threads: NonZeroUsize,
    /// Returns an error if the call has to stop. Each thread calls it between blocks.
    pub check: &'a (dyn Fn() -> Result<(), Halt> + Sync),
}

impl Workers<'_> {
    /// Returns [`GemmError::Halted`] if the call has to stop.
    pub(super) fn check_interrupt(&self) -> Result<(), GemmError> {
        Ok((self.check)()?)
    }

    /// Executes the jobs `0..jobs`, each of about `operations` floating-point operations, with a `state` for
    /// each thread. Starts no more threads than the operations are worth. After a failure no other job is
    /// started, and the first failure is returned.
    pub(super) fn distribute<S>(
        &self,
        jobs: u64,
        operations: u64,
        state: impl Fn() -> S + Sync,
        act: impl Fn(&mut S, u64) -> Result<(), GemmError> + Sync,
    ) -> Result<(), GemmError> {
        let next = AtomicU64::new(0);
        let failure = Mutex::new(None);
        let work = || {
            let mut state = state();
            loop {
                // The count stops at `jobs`, which may be `u64::MAX`.
                let more = |job: u64| (job < jobs).then(|| job + 1);
                let Ok(job) = next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more) else { return };
                if let Err(error) = act(&mut state, job) {
                    failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                    next.store(jobs, Ordering::Relaxed);
                    return;
                }
            }
        };
        let worth = operations.saturating_mul(jobs) / OPERATIONS;
        let threads = worth.min(jobs).min(self.threads.get() as u64);
        if threads < 2 {
            work();
        } else {
            thread::scope(|scope| {
                for _ in 1..threads {
                    // If the system refuses a thread, the call only takes longer.
                    if thread::Builder::new().name("gemm".into()).spawn_scoped(scope, work).is_err() {
                        break;
                    }
                }
                work();
            });
        }
        failure.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
    }
}
