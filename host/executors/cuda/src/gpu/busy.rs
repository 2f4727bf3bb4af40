//! Time during which the session had work on the GPU: its GPU time, as far as the host can measure it.
//!
//! A stream is outstanding from the moment at which it is given work until all of the work is known to be
//! complete. The session's time is the time during which any of its streams is outstanding. It is an upper
//! bound of the GPU's time for the session: it includes time in which the GPU worked for other sessions, in
//! which a stream waited for the host, and until somebody asked whether the work is complete.
//!
//! No event is recorded for this. Where work has a fence, the fence is polled anyway. Where it has none, such
//! as launches that nobody has waited for, the stream is polled ([`Busy::ask`]).

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use vgpu_device::{SessionHost, TrackedGuard, lock_tracked};

use crate::driver::stream::DriverStream;

/// Interval at which unfinished work is counted, so that status reports show long work grow.
const STEP: Duration = Duration::from_millis(100);

/// Work of one stream that may not be complete.
#[derive(Debug)]
struct Outstanding {
    /// The stream, or `None` if it was destroyed and a fence follows all its work.
    stream: Option<Arc<DriverStream>>,
    /// Number of times that the stream was given work.
    given: u64,
}

#[derive(Debug, Default)]
struct BusyState {
    /// Streams whose work may not be complete, by the id of their state.
    streams: HashMap<u64, Outstanding>,
    /// Start of the time that is not counted yet, or `None` if no stream is outstanding.
    since: Option<Instant>,
    /// Whether the session's thread has announced work that the driver does not have yet.
    giving: bool,
}

impl BusyState {
    /// Removes a stream that was given no more than the amount `given`, which is complete. The caller drops
    /// the result without the lock, because the last reference to a stream destroys it.
    fn remove_complete(&mut self, stream_id: u64, given: u64) -> Option<Outstanding> {
        let complete = self.streams.get(&stream_id).is_some_and(|work| work.given == given);
        if complete { self.streams.remove(&stream_id) } else { None }
    }
}

/// Measures the time of a session.
#[derive(Debug)]
pub(crate) struct Busy {
    host: SessionHost,
    state: Mutex<BusyState>,
}

impl Busy {
    /// Creates the measurement of a session that has no work.
    pub(crate) fn new(host: SessionHost) -> Self {
        Self { host, state: Mutex::default() }
    }

    fn state(&self) -> TrackedGuard<'_, BusyState> {
        lock_tracked(&self.state)
    }

    /// Records that a stream is given work until [`Busy::end_submit`]. Returns whether no stream was
    /// outstanding.
    pub(crate) fn begin_work(&self, stream_id: u64, stream: &Arc<DriverStream>) -> bool {
        let mut state = self.state();
        let new = || Outstanding { stream: Some(Arc::clone(stream)), given: 0 };
        state.streams.entry(stream_id).or_insert_with(new).given += 1;
        state.giving = true;
        let first = state.since.is_none();
        if first {
            state.since = Some(Instant::now());
        }
        first
    }

    /// Records that the driver has all work that was announced.
    pub(crate) fn end_submit(&self) {
        self.state().giving = false;
    }

    /// Returns the amount of work that a stream was given so far. A fence that is recorded now follows it.
    pub(crate) fn behind(&self, stream_id: u64) -> u64 {
        self.state().streams.get(&stream_id).map_or(0, |stream_id| stream_id.given)
    }

    /// Records that a fence was reached. The fence follows the amount `behind` of a stream's work.
    pub(crate) fn reached(&self, stream_id: u64, behind: u64) {
        let mut state = self.state();
        let _done = state.remove_complete(stream_id, behind);
        self.count(state);
    }

    /// Returns whether the work of any stream may not be complete.
    pub(crate) fn is_outstanding(&self) -> bool {
        self.state().since.is_some()
    }

    /// Records that a stream is about to be destroyed. If `fenced`, a fence after all its work will be
    /// reported. Otherwise the work is complete or lost.
    pub(crate) fn destroyed(&self, stream_id: u64, fenced: bool) {
        let mut state = self.state();
        if fenced {
            let outstanding = state.streams.get_mut(&stream_id);
            let _destroyed = outstanding.and_then(|outstanding| outstanding.stream.take());
            drop(state);
        } else {
            let _done = state.streams.remove(&stream_id);
            self.count(state);
        }
    }

    /// Polls the streams that no fence will report, and counts the time so far. The context must be current
    /// in the calling thread.
    pub(crate) fn ask(&self, is_fenced: impl Fn(u64) -> bool) {
        let state = self.state();
        let asked: Vec<(u64, u64, Arc<DriverStream>)> = if state.giving {
            Vec::new()
        } else {
            let unfenced = state.streams.iter().filter(|(stream_id, _)| !is_fenced(**stream_id));
            let with =
                unfenced.filter_map(|(stream_id, work)| Some((*stream_id, work.given, work.stream.clone()?)));
            with.collect()
        };
        // No launch must wait for the driver's answer. Work that is added meanwhile changes the amount.
        drop(state);
        let complete: Vec<(u64, u64)> = asked
            .iter()
            // A stream that returns an error has lost its context and does nothing more. The next call for
            // the guest reports it.
            .filter(|(_, _, stream)| !matches!(stream.is_complete(), Ok(false)))
            .map(|(stream_id, given, _)| (*stream_id, *given))
            .collect();
        let mut state = self.state();
        let done = complete.into_iter().map(|(stream_id, given)| state.remove_complete(stream_id, given));
        let _done: Vec<Option<Outstanding>> = done.collect();
        self.count(state);
    }

    /// Stops counting, because the context is lost or all work is complete.
    pub(crate) fn end(&self) {
        let mut state = self.state();
        let _done = std::mem::take(&mut state.streams);
        self.count(state);
    }

    /// Counts the time since `since` if all work is complete, or if the interval has passed.
    fn count(&self, mut state: TrackedGuard<'_, BusyState>) {
        let Some(since) = state.since else { return };
        let (now, over) = (Instant::now(), state.streams.is_empty());
        let passed = now.saturating_duration_since(since);
        if over || passed >= STEP {
            state.since = (!over).then_some(now);
            drop(state);
            self.host.worked(passed);
        }
    }
}
