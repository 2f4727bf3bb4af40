//! The guest's streams: their order among each other, and how far their work is known to be complete.
//!
//! Each stream of the guest is a stream of the driver, and stream 0 is the legacy default stream, so that
//! CUDA orders it against the others. The contract adds joins: all later work waits for the work that a
//! stream was given so far. A join is an event in the joined stream, and a wait in each other stream before
//! its next work.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use vgpu_device::StreamConfig;
use vgpu_wire::JOIN_ALL;

use crate::driver::context::DriverContext;
use crate::driver::error::DriverError;
use crate::driver::stream::DriverStream;
use crate::gpu::completion::{Completions, OnComplete, Retained};
use crate::gpu::fence::{Fence, Fences};
use crate::gpu::stream_state::StreamState;
use crate::gpu::waiting_work::WaitingWork;

/// Number of the legacy default stream, which is also the id of its state.
const LEGACY: u32 = 0;
/// Number of joins above which completed joins are removed.
const JOINS_MOST: usize = 32;

/// A join for which streams may have to wait.
#[derive(Debug)]
struct Join {
    stream_id: u64,
    fence: Arc<Fence>,
}

/// Fences after work that precedes a hold, each `None` if the work is complete.
#[derive(Debug)]
pub(crate) struct BeforeHold {
    own: Option<Arc<Fence>>,
    legacy: Option<Arc<Fence>>,
}

/// The streams of a session.
#[derive(Debug)]
pub(crate) struct Streams {
    context: Arc<DriverContext>,
    fences: Arc<Fences>,
    completions: Completions,
    states: HashMap<u32, StreamState>,
    /// Streams that may have unfinished work.
    active: HashSet<u32>,
    /// Newest fences of destroyed streams, with the ids of their states.
    ended: Vec<(u64, Arc<Fence>)>,
    next_id: u64,
    /// Joins by number, at most one of each stream.
    joins: BTreeMap<u64, Join>,
    newest_join: u64,
    /// Amount of work of the legacy stream and of the streams for which it waits, and the amount that the
    /// legacy stream's newest fence covers.
    ordered: u64,
    covered: u64,
    /// Work that waits for the guest.
    waiting: WaitingWork,
    /// Holds that later work of the legacy stream waits for, the oldest first, each with a fence after its
    /// work before the hold unless that was complete.
    legacy_holds: VecDeque<(u32, Option<Arc<Fence>>)>,
    /// Whether [`Streams::begin_work`] has announced work that the driver does not have yet.
    giving: bool,
}

impl Streams {
    /// Creates the streams of a session, of which only the legacy default stream exists.
    pub(crate) fn new(context: &Arc<DriverContext>, fences: &Arc<Fences>, completions: Completions) -> Self {
        let mut legacy = StreamState::new(0, StreamConfig { non_blocking: false, priority: 0 });
        let made = legacy.stream(|_| Ok::<_, DriverError>(DriverStream::legacy(context)));
        debug_assert!(made.is_ok(), "the legacy stream is there");
        Self {
            context: Arc::clone(context),
            fences: Arc::clone(fences),
            completions,
            states: HashMap::from([(LEGACY, legacy)]),
            active: HashSet::new(),
            ended: Vec::new(),
            next_id: 1,
            joins: BTreeMap::new(),
            newest_join: 0,
            ordered: 0,
            covered: 0,
            waiting: WaitingWork::default(),
            legacy_holds: VecDeque::new(),
            giving: false,
        }
    }

    /// Creates a stream. The driver's stream is created for its first work.
    pub(crate) fn create(&mut self, number: u32, config: StreamConfig) {
        let state = StreamState::new(self.next_id, config);
        self.next_id += 1;
        self.states.insert(number, state);
    }

    /// Creates the driver's streams that do not exist yet, because a driver may create none while a stream is
    /// held.
    pub(crate) fn create_all(&mut self) -> Result<(), DriverError> {
        let context = &self.context;
        for state in self.states.values_mut() {
            state.stream(|config| DriverStream::create(context, config.non_blocking, config.priority))?;
        }
        Ok(())
    }

    /// Destroys a stream. Its work still completes.
    pub(crate) fn destroy(&mut self, number: u32, message: u64) -> Result<(), DriverError> {
        let fence = self.fence(number, message);
        self.active.remove(&number);
        let state = self.states.remove(&number);
        if let Some(state) = &state {
            self.completions.busy().destroyed(state.id, matches!(fence, Ok(Some(_))));
        }
        if let (Some(state), Some(fence)) = (state, fence?) {
            self.forget_ended();
            // The list of active streams lets the completion thread find the work complete.
            self.completions.add_action(state.id, &fence, message, OnComplete::Drop(Arc::new(())));
            self.ended.push((state.id, fence));
        }
        Ok(())
    }

    /// Prepares a stream for a piece of work, as [`Streams::begin_pieces`] does.
    pub(crate) fn begin_work(&mut self, number: u32) -> Result<&DriverStream, DriverError> {
        self.begin_pieces(number, 1)
    }

    /// Prepares a stream for work that takes `own` entries in the driver's queue: makes the stream wait for
    /// all joins so far, and announces the work. Fails with `OUT_OF_MEMORY` if the work would wait for a hold
    /// and too much work does.
    pub(crate) fn begin_pieces(&mut self, number: u32, own: u64) -> Result<&DriverStream, DriverError> {
        let Some(state) = self.states.get_mut(&number) else { unreachable!("the session knows its streams") };
        let context = &self.context;
        // What the stream waits for implicitly, before the work is counted.
        let implicit = self.waiting.implicit(number == LEGACY, state.config.non_blocking);
        let (id, mut hold, mut pieces) = (state.id, state.last_hold.max(implicit), own);
        if state.joined < self.newest_join {
            let joins = self.joins.range(state.joined + 1..).map(|(_, join)| join);
            let joins = joins.filter(|join| join.stream_id != id);
            hold = joins.clone().map(|join| join.fence.hold).fold(hold, u32::max);
            // Refused before the stream is given the waits, which fill the queue as well.
            self.waiting.admit(hold)?;
            let stream =
                state.stream(|config| DriverStream::create(context, config.non_blocking, config.priority))?;
            for join in joins {
                join.fence.make_wait(stream)?;
                pieces += 1;
            }
            state.joined = self.newest_join;
        } else {
            self.waiting.admit(hold)?;
            state.stream(|config| DriverStream::create(context, config.non_blocking, config.priority))?;
        }
        let fresh = !state.is_dirty();
        state.last_hold = hold;
        self.waiting.count(hold, pieces, number == LEGACY, state.config.non_blocking);
        state.count_work();
        if fresh {
            self.active.insert(number);
        }
        if !state.config.non_blocking {
            self.ordered += 1;
        }
        let stream = state.made().expect("it was just made");
        self.giving = true;
        self.completions.announce_work(state.id, stream);
        Ok(stream)
    }

    /// Returns fences after the work that precedes a hold of a stream: that of the stream so far, and that of
    /// the legacy stream if the two are ordered. Also records the fences at which retained values are
    /// dropped, because any stream may wait for the hold before its next fence.
    pub(crate) fn before_hold(&mut self, number: u32, message: u64) -> Result<BeforeHold, DriverError> {
        self.fence_carried(message)?;
        let own = self.fence(number, message)?;
        let ordered = self.states.get(&number).is_some_and(|state| !state.config.non_blocking);
        let legacy = if ordered { self.own_fence(LEGACY, message)? } else { None };
        Ok(BeforeHold { own, legacy })
    }

    /// Records that later work of a stream waits for the guest.
    pub(crate) fn hold(&mut self, number: u32, hold: u32, before: BeforeHold) {
        if let Some(state) = self.states.get_mut(&number) {
            state.hold(hold, before.own);
            if !state.config.non_blocking {
                self.legacy_holds.push_back((hold, before.legacy));
            }
            self.waiting.hold(hold, number == LEGACY, state.config.non_blocking);
        }
    }

    /// Records that the guest has released a hold.
    pub(crate) fn release(&mut self, hold: u32) {
        self.states.values_mut().for_each(|state| state.release(hold));
        self.legacy_holds.retain(|(held, _)| *held != hold);
        self.waiting.release(hold);
    }

    /// Returns whether later work of a stream waits for the guest, by a hold of its own or of another stream.
    pub(crate) fn waits_for_guest(&self, number: u32) -> bool {
        let Some(state) = self.states.get(&number) else { return false };
        let joined = self.joins.range(state.joined + 1..).map(|(_, join)| join.fence.hold).max();
        let implicit = self.waiting.implicit(number == LEGACY, state.config.non_blocking);
        self.waiting.is_open(state.last_hold.max(implicit).max(joined.unwrap_or(0)))
    }

    /// Records that the driver has all work since [`Streams::begin_work`].
    pub(crate) fn end_submit(&mut self) {
        if std::mem::take(&mut self.giving) {
            self.completions.busy().end_submit();
        }
    }

    /// Retains a value until the work is complete that the stream was just given. While a hold is open, the
    /// stream gets a fence at once, because it may wait for the hold before its next fence.
    pub(crate) fn carry(&mut self, number: u32, message: u64, used: Retained) -> Result<(), DriverError> {
        let full = self.states.get_mut(&number).is_some_and(|state| state.carry(used));
        if full || self.waiting.has_open_hold() && !self.waits_for_guest(number) {
            self.fence(number, message)?;
        }
        Ok(())
    }

    /// Records a fence for each stream that retains values and does not wait for the guest, so that they are
    /// dropped when its work is complete.
    pub(crate) fn fence_carried(&mut self, message: u64) -> Result<(), DriverError> {
        let carrying = self.states.iter().filter(|(_, state)| state.is_carrying());
        let free = carrying.map(|(number, _)| *number).filter(|number| !self.waits_for_guest(*number));
        let numbers: Vec<u32> = free.collect();
        numbers.into_iter().try_for_each(|number| self.record(number, message, false).map(drop))
    }

    /// Returns a fence after all work that the stream was given, or `None` if the work is complete.
    pub(crate) fn fence(&mut self, number: u32, message: u64) -> Result<Option<Arc<Fence>>, DriverError> {
        if self.states.get(&number).is_some_and(|state| self.has_open_joins(state)) {
            // A fence is ordered after the joins, as work of the stream itself would be.
            self.begin_work(number)?;
        }
        let unfenced = if number == LEGACY {
            // The legacy stream waits for the streams that are ordered with it, so it is complete only when
            // they are.
            self.covered != self.ordered
        } else {
            self.states.get(&number).is_some_and(StreamState::is_dirty)
        };
        if unfenced {
            return self.record(number, message, false).map(Some);
        }
        Ok(self.states.get(&number).and_then(StreamState::tail).cloned())
    }

    /// Returns whether a join for which the stream does not wait yet may be incomplete.
    fn has_open_joins(&self, state: &StreamState) -> bool {
        state.joined < self.newest_join
            && self
                .joins
                .range(state.joined + 1..)
                .any(|(_, join)| join.stream_id != state.id && !join.fence.is_known_complete())
    }

    /// Records a fence after all work of the stream. It releases the values that this work retains.
    fn record(&mut self, number: u32, message: u64, timed: bool) -> Result<Arc<Fence>, DriverError> {
        let Some(state) = self.states.get_mut(&number) else { unreachable!("the session knows its streams") };
        let (context, id) = (&self.context, state.id);
        let implicit = self.waiting.implicit(number == LEGACY, state.config.non_blocking);
        let hold = state.last_hold.max(implicit);
        let stream =
            state.stream(|config| DriverStream::create(context, config.non_blocking, config.priority))?;
        let fence = self.fences.record(stream, timed, self.completions.busy().behind(id), hold)?;
        // The record waits as work does, and passes the hold on.
        self.waiting.count(hold, 1, number == LEGACY, state.config.non_blocking);
        let carried = state.fenced(&fence);
        self.active.insert(number);
        if number == LEGACY {
            self.covered = self.ordered;
        }
        for used in carried {
            self.completions.add_action(id, &fence, message, OnComplete::Drop(used));
        }
        Ok(fence)
    }

    /// Performs an action once all work that the stream was given is complete.
    pub(crate) fn on_complete(
        &mut self,
        number: u32,
        message: u64,
        then: OnComplete,
    ) -> Result<(), DriverError> {
        match self.fence(number, message) {
            Ok(Some(fence)) => {
                self.completions.add_action(self.id(number), &fence, message, then);
                Ok(())
            }
            Ok(None) => {
                self.completions.perform_now(then, message);
                Ok(())
            }
            Err(error) => {
                // No thread must wait for the mark in vain.
                self.completions.report_loss(message, &error);
                self.completions.perform_now(then, message);
                Err(error)
            }
        }
    }

    /// Stores a mark, with the time, once all work that the stream was given is complete.
    pub(crate) fn on_complete_timed(
        &mut self,
        number: u32,
        message: u64,
        mark: vgpu_wire::Mark,
    ) -> Result<Arc<Fence>, DriverError> {
        // The stream waits for joins even if it has no work of its own.
        let recorded = self.begin_work(number).map(drop).and_then(|()| self.record(number, message, true));
        match &recorded {
            Ok(fence) => {
                self.completions.add_action(self.id(number), fence, message, OnComplete::Timed(mark));
            }
            Err(error) => {
                self.completions.report_loss(message, error);
                self.completions.perform_now(OnComplete::Mark(mark), message);
            }
        }
        recorded
    }

    /// Retains `used` until all work that any stream was given is complete. If fences cannot be recorded, the
    /// caller's reference is the last.
    pub(crate) fn drop_after_all(&mut self, message: u64, used: &Retained) -> Result<(), DriverError> {
        for number in self.active.clone() {
            let Some(state) = self.states.get(&number) else { continue };
            let (id, dirty, last) = (state.id, state.is_dirty(), state.last().cloned());
            let fence = if dirty {
                let recorded = self.record(number, message, false);
                Some(recorded.inspect_err(|error| self.completions.report_loss(message, error))?)
            } else {
                last.filter(|fence| !self.is_over(id, fence))
            };
            match fence {
                Some(fence) => {
                    self.completions.add_action(id, &fence, message, OnComplete::Drop(Arc::clone(used)));
                }
                None => {
                    self.active.remove(&number);
                }
            }
        }
        self.forget_ended();
        for (stream_id, fence) in &self.ended {
            self.completions.add_action(*stream_id, fence, message, OnComplete::Drop(Arc::clone(used)));
        }
        Ok(())
    }

    /// Retains `used` until all work is complete that does not wait for the guest, as the arbiter of the
    /// GPU's time asks for it.
    pub(crate) fn settle(&mut self, message: u64, used: &Retained) -> Result<(), DriverError> {
        // The legacy stream waits for all that are ordered with it, and they for it.
        let legacy_is_held = self.states.get(&LEGACY).is_some_and(StreamState::is_held);
        for number in self.active.clone() {
            let Some(state) = self.states.get(&number) else { continue };
            let id = state.id;
            let legacy_hold = self.legacy_holds.front().filter(|_| number == LEGACY);
            if state.is_held() || legacy_hold.is_some() {
                let reached = legacy_hold.map_or_else(|| state.before_hold(), |(_, fence)| fence.as_ref());
                if let Some(reached) = reached.filter(|fence| !fence.is_known_complete()) {
                    self.completions.settle_at(id, reached, message, Arc::clone(used));
                }
                continue;
            }
            let fence = if legacy_is_held && !state.config.non_blocking {
                None
            } else {
                self.own_fence(number, message)?
            };
            if let Some(fence) = fence {
                self.completions.add_action(id, &fence, message, OnComplete::Settle(Arc::clone(used)));
            }
        }
        self.forget_ended();
        for (stream_id, fence) in &self.ended {
            self.completions.add_action(*stream_id, fence, message, OnComplete::Settle(Arc::clone(used)));
        }
        Ok(())
    }

    /// Returns whether a fence of a stream is reached, and all its actions were performed.
    fn is_over(&self, stream_id: u64, fence: &Fence) -> bool {
        fence.is_known_complete() && self.completions.is_settled(stream_id)
    }

    /// Removes destroyed streams whose work is complete.
    fn forget_ended(&mut self) {
        let mut ended = std::mem::take(&mut self.ended);
        ended.retain(|(stream_id, fence)| !self.is_over(*stream_id, fence));
        self.ended = ended;
    }

    /// Returns the fence of a stream's own work, without the streams with which it is ordered.
    fn own_fence(&mut self, number: u32, message: u64) -> Result<Option<Arc<Fence>>, DriverError> {
        let Some(state) = self.states.get(&number) else { return Ok(None) };
        if state.is_dirty() {
            return self.record(number, message, false).map(Some);
        }
        Ok(state.tail().cloned())
    }

    /// Makes all later work, on any stream, wait for the work that stream `number`, or all streams, were
    /// given.
    pub(crate) fn join(&mut self, number: u32, message: u64) -> Result<(), DriverError> {
        if number != JOIN_ALL {
            if let Some(fence) = self.fence(number, message)? {
                self.add_join(self.id(number), fence);
            }
            return Ok(());
        }
        for number in self.active.clone() {
            if let Some(fence) = self.own_fence(number, message)? {
                self.add_join(self.id(number), fence);
            }
        }
        self.forget_ended();
        for (stream_id, fence) in self.ended.clone() {
            self.add_join(stream_id, fence);
        }
        Ok(())
    }

    fn add_join(&mut self, stream_id: u64, fence: Arc<Fence>) {
        // A later fence of a state covers its earlier ones, and all later work is later than both.
        self.joins.retain(|_, join| join.stream_id != stream_id);
        if self.joins.len() >= JOINS_MOST {
            // The completion thread sees the error when it next queries the fence.
            self.joins.retain(|_, join| !join.fence.is_complete().unwrap_or(false));
        }
        self.newest_join += 1;
        self.joins.insert(self.newest_join, Join { stream_id, fence });
    }

    /// Makes later work of a stream wait for a fence.
    pub(crate) fn wait(&mut self, number: u32, fence: &Fence) -> Result<(), DriverError> {
        if fence.is_known_complete() {
            return Ok(());
        }
        if let Some(state) = self.states.get_mut(&number) {
            state.last_hold = state.last_hold.max(fence.hold);
        }
        fence.make_wait(self.begin_work(number)?)
    }

    /// Returns the session's completions.
    pub(crate) const fn completions(&self) -> &Completions {
        &self.completions
    }

    /// Returns whether all work of the stream, and all work for which it waits, is known to be complete.
    pub(crate) fn is_idle(&self, number: u32) -> bool {
        let Some(state) = self.states.get(&number) else { return true };
        let ordered = number == LEGACY && self.covered != self.ordered;
        state.is_idle() && !ordered && !self.has_open_joins(state)
    }

    /// Destroys all streams. No work may be in progress.
    pub(crate) fn end(&mut self) {
        self.completions.stop();
        self.joins.clear();
        self.ended.clear();
        self.legacy_holds.clear();
        self.states.clear();
    }

    /// Returns the id of a stream's state.
    pub(crate) fn id(&self, number: u32) -> u64 {
        self.states.get(&number).map_or(0, |state| state.id)
    }
}
