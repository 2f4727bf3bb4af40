//! How long the session has had work on the GPU: its GPU time, as far as the host can know it.
//!
//! A stream is outstanding from the moment at which it is given work until all of that is known to be
//! complete. The session's time is that during which any of its streams is. The time that the GPU spent on
//! the session is at most that: it also holds the time in which the GPU worked for other sessions first, in
//! which a stream waited for the host, and until somebody asked whether the work is complete.
//!
//! No event is recorded for this. Where work has a fence, that is asked anyway; where it has none, such as
//! launches that nobody has waited for yet, the stream is asked ([`Busy::ask`]).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use vgpu_device::SessionHost;

use crate::driver::stream::Stream;

/// Time that is counted before its work is complete, so that whoever looks sees long work go on.
const STEP: Duration = Duration::from_millis(100);

/// A stream's work.
#[derive(Debug)]
struct Outstanding {
    /// `None`: the stream is destroyed, and a fence is behind all its work.
    stream: Option<Arc<Stream>>,
    /// How often it was given work.
    given: u64,
}

#[derive(Debug, Default)]
struct State {
    /// Streams with work that may not be complete, by lane.
    lanes: HashMap<u64, Outstanding>,
    /// Since when there are any, or since when their time is not counted.
    since: Option<Instant>,
    /// The session's thread has said that it gives work, and not that it has.
    giving: bool,
}

/// The time of a session.
#[derive(Debug)]
pub(crate) struct Busy {
    host: SessionHost,
    state: Mutex<State>,
}

impl Busy {
    /// A session without work.
    pub(crate) fn new(host: SessionHost) -> Self {
        Self { host, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The stream of a lane is given work next, until [`Busy::given`]. Whether no stream was outstanding.
    pub(crate) fn give(&self, lane: u64, stream: &Arc<Stream>) -> bool {
        let mut state = self.state();
        let new = || Outstanding { stream: Some(Arc::clone(stream)), given: 0 };
        state.lanes.entry(lane).or_insert_with(new).given += 1;
        state.giving = true;
        let first = state.since.is_none();
        if first {
            state.since = Some(Instant::now());
        }
        first
    }

    /// The driver has all work that was announced.
    pub(crate) fn given(&self) {
        self.state().giving = false;
    }

    /// How much work a lane has been given so far: a fence that is recorded now is behind it.
    pub(crate) fn behind(&self, lane: u64) -> u64 {
        self.state().lanes.get(&lane).map_or(0, |lane| lane.given)
    }

    /// A fence of a lane is reached, which is behind so much of its work.
    pub(crate) fn reached(&self, lane: u64, behind: u64) {
        let mut state = self.state();
        if state.lanes.get(&lane).is_some_and(|lane| lane.given == behind) {
            state.lanes.remove(&lane);
        }
        self.count(state);
    }

    /// Whether work of any stream may not be complete.
    pub(crate) fn is_outstanding(&self) -> bool {
        self.state().since.is_some()
    }

    /// A stream is about to be destroyed. `fenced`: a fence behind all its work will be reported as reached;
    /// else the work is complete, or lost.
    pub(crate) fn destroyed(&self, lane: u64, fenced: bool) {
        let mut state = self.state();
        if fenced {
            if let Some(outstanding) = state.lanes.get_mut(&lane) {
                outstanding.stream = None;
            }
        } else {
            state.lanes.remove(&lane);
            self.count(state);
        }
    }

    /// Asks the streams of lanes that do not wait for a fence whether their work is complete, and counts the
    /// time so far. The calling thread has the context.
    pub(crate) fn ask(&self, is_fenced: impl Fn(u64) -> bool) {
        let state = self.state();
        let asked: Vec<(u64, u64, Arc<Stream>)> = if state.giving {
            Vec::new()
        } else {
            let unfenced = state.lanes.iter().filter(|(lane, _)| !is_fenced(**lane));
            let with = unfenced.filter_map(|(lane, work)| Some((*lane, work.given, work.stream.clone()?)));
            with.collect()
        };
        // No launch waits for the driver's answer. What is given meanwhile is another number of pieces of
        // work.
        drop(state);
        let complete: Vec<(u64, u64)> = asked
            .iter()
            // A stream that answers with an error has lost its context and does nothing more; the next call
            // for the guest tells it.
            .filter(|(_, _, stream)| !matches!(stream.is_complete(), Ok(false)))
            .map(|(lane, given, _)| (*lane, *given))
            .collect();
        let mut state = self.state();
        for (lane, given) in complete {
            if state.lanes.get(&lane).is_some_and(|work| work.given == given) {
                state.lanes.remove(&lane);
            }
        }
        self.count(state);
    }

    /// The context is lost, or nothing is under way any more.
    pub(crate) fn end(&self) {
        let mut state = self.state();
        state.lanes.clear();
        self.count(state);
    }

    /// Counts the time since `since`, when its work is complete or it is long.
    fn count(&self, mut state: MutexGuard<'_, State>) {
        let Some(since) = state.since else { return };
        let (now, over) = (Instant::now(), state.lanes.is_empty());
        let passed = now.saturating_duration_since(since);
        if over || passed >= STEP {
            state.since = (!over).then_some(now);
            drop(state);
            self.host.worked(passed);
        }
    }
}
