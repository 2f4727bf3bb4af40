//! Distributes jobs to threads.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use vgpu_ptx::Halt;

use super::error::GemmError;

/// Number of operations for which another thread is started: about ten times what starting it costs.
const OPERATIONS: u64 = 20_000_000;

/// How a call is executed.
#[derive(Clone, Copy)]
pub struct Run<'a> {
    /// The most threads that work on the call, including the caller's.
    pub threads: NonZeroUsize,
    /// Fails if the call is to stop. Every thread calls it between blocks.
    pub check: &'a (dyn Fn() -> Result<(), Halt> + Sync),
}

impl Run<'_> {
    /// Fails if the call is to stop.
    pub(super) fn go_on(&self) -> Result<(), GemmError> {
        Ok((self.check)()?)
    }

    /// Executes jobs 0 to `jobs`, each of about `operations` floating-point operations, with a `state` for
    /// each thread. After a failure no other job is started, and the failure is returned.
    pub(super) fn share<S>(
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
                    // Fewer threads than wanted only take longer.
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
