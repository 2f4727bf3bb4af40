//! A session in the device's saved state, without what its thread and its executor know.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{RetiredMemory, SessionHost};
use crate::saved::error::{NotSaved, RestoreError};
use crate::saved::state::{FiguresState, RetiredState, RunningState, SessionState};
use crate::sync::lock;

impl SessionHost {
    /// Describes the session, whose thread is at a boundary between two messages.
    pub(crate) fn save(&self, running: Option<RunningState>) -> Result<SessionState, NotSaved> {
        let memory = self.0.memory.save(self.return_run())?;
        let counters = self.counters();
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let mut figures = FiguresState {
            messages: load(&counters.messages),
            done: load(&counters.done),
            host_sleeps: load(&counters.host_sleeps),
            ..FiguresState::default()
        };
        self.gauges().save(&mut figures);
        counters.stats.save(&mut figures);
        Ok(SessionState {
            number: self.session(),
            process: self.process(),
            memory,
            sticky: *lock(&self.0.sticky),
            figures,
            running,
        })
    }

    /// Takes over memory and figures of a saved session. This host was made for that session, and has none
    /// yet. Fails if another owner has a part of the memory.
    pub(crate) fn restore(&self, state: &SessionState) -> Result<(), RestoreError> {
        self.0.memory.restore(&state.memory)?;
        *lock(&self.0.sticky) = state.sticky;
        let (counters, figures) = (self.counters(), &state.figures);
        counters.set(figures.messages, figures.done);
        counters.host_sleeps.store(figures.host_sleeps, Ordering::Relaxed);
        self.gauges().restore(figures);
        counters.stats.restore(figures)?;
        if state.running.is_none() {
            counters.are_added.store(true, Ordering::Relaxed);
            self.end();
        }
        Ok(())
    }

    /// Takes over memory that the session had retired.
    pub fn restore_retired(&self, state: &RetiredState) -> Result<RetiredMemory, RestoreError> {
        RetiredMemory::restore(self, state)
    }
}
