//! The guest's streams: their order among each other, and what is known of how far they are.
//!
//! Each stream of the guest's is one of the driver's, and stream 0 is the legacy default stream, so that CUDA
//! itself orders it against the others. What the contract adds are joins: everything that comes later waits
//! for what a stream was given. That is an event in the joined stream, and a wait in each other stream before
//! its next work.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use vgpu_abi::CUresult;
use vgpu_device::StreamConfig;
use vgpu_wire::JOIN_ALL;

use crate::driver::context::Context;
use crate::driver::error::DriverError;
use crate::driver::stream::Stream;
use crate::gpu::completion::{Completions, Then, Used};
use crate::gpu::fence::{Fence, Fences};
use crate::gpu::lane::Lane;

/// Number of the legacy default stream, and the id of its lane.
const LEGACY: u32 = 0;
/// Joins above which those that are complete are forgotten.
const JOINS_MOST: usize = 32;

/// A join that streams may have to wait for.
#[derive(Debug)]
struct Join {
    lane: u64,
    fence: Arc<Fence>,
}

/// The streams of a session.
#[derive(Debug)]
pub(crate) struct Streams {
    context: Arc<Context>,
    fences: Arc<Fences>,
    completions: Completions,
    lanes: HashMap<u32, Lane>,
    /// Streams that may have work under way.
    active: HashSet<u32>,
    /// Newest fences of destroyed streams, with their lanes.
    ended: Vec<(u64, Arc<Fence>)>,
    next_lane: u64,
    /// Joins by number, at most one of each lane.
    joins: BTreeMap<u64, Join>,
    newest_join: u64,
    /// Work of streams that the legacy stream waits for, and of its own, counted; and what of it its newest
    /// fence covers.
    ordered: u64,
    covered: u64,
    /// A stream was asked for, to be given work.
    giving: bool,
}

impl Streams {
    /// The legacy default stream, and none of the guest's.
    pub(crate) fn new(context: &Arc<Context>, fences: &Arc<Fences>, completions: Completions) -> Self {
        let mut legacy = Lane::new(0, StreamConfig { non_blocking: false, priority: 0 });
        let made = legacy.stream(|_| Ok::<_, DriverError>(Stream::legacy(context)));
        debug_assert!(made.is_ok(), "the legacy stream is there");
        Self {
            context: Arc::clone(context),
            fences: Arc::clone(fences),
            completions,
            lanes: HashMap::from([(LEGACY, legacy)]),
            active: HashSet::new(),
            ended: Vec::new(),
            next_lane: 1,
            joins: BTreeMap::new(),
            newest_join: 0,
            ordered: 0,
            covered: 0,
            giving: false,
        }
    }

    /// A stream of the guest's. The driver's is made with its first work.
    pub(crate) fn create(&mut self, number: u32, config: StreamConfig) {
        let lane = Lane::new(self.next_lane, config);
        self.next_lane += 1;
        self.lanes.insert(number, lane);
    }

    /// The guest destroys a stream, whose work is finished first.
    pub(crate) fn destroy(&mut self, number: u32, message: u64) -> Result<(), DriverError> {
        let fence = self.fence(number, message);
        self.active.remove(&number);
        let lane = self.lanes.remove(&number);
        if let Some(lane) = &lane {
            self.completions.busy().destroyed(lane.id, matches!(fence, Ok(Some(_))));
        }
        if let (Some(lane), Some(fence)) = (lane, fence?) {
            self.forget_ended();
            // So that it is found complete.
            self.completions.add(lane.id, &fence, message, Then::Drop(Arc::new(())));
            self.ended.push((lane.id, fence));
        }
        Ok(())
    }

    /// The stream, to be given work now: it waits for all joins so far.
    pub(crate) fn work(&mut self, number: u32) -> Result<&Stream, DriverError> {
        let Some(lane) = self.lanes.get_mut(&number) else { unreachable!("the session knows its streams") };
        let context = &self.context;
        lane.stream(|config| Stream::create(context, config.non_blocking, config.priority))?;
        if lane.joined < self.newest_join {
            if let Some(stream) = lane.made() {
                for join in self.joins.range(lane.joined + 1..).map(|(_, join)| join) {
                    if join.lane != lane.id {
                        join.fence.hold_up(stream)?;
                    }
                }
            }
            lane.joined = self.newest_join;
        }
        let fresh = !lane.is_dirty();
        if !lane.begin_work() {
            return Err(DriverError {
                call: "queue work behind a held stream",
                code: CUresult::OUT_OF_MEMORY,
            });
        }
        if fresh {
            self.active.insert(number);
        }
        if !lane.config.non_blocking {
            self.ordered += 1;
        }
        let stream = lane.made().expect("it was just made");
        self.giving = true;
        self.completions.give(lane.id, stream);
        Ok(stream)
    }

    /// Later work of a stream waits for the guest.
    pub(crate) fn hold(&mut self, number: u32, hold: u32) {
        if let Some(lane) = self.lanes.get_mut(&number) {
            lane.hold(hold);
        }
    }

    /// The guest releases a hold.
    pub(crate) fn release(&mut self, hold: u32) {
        self.lanes.values_mut().for_each(|lane| lane.release(hold));
    }

    /// The driver has all that was to be given to streams since [`Streams::work`].
    pub(crate) fn given(&mut self) {
        if std::mem::take(&mut self.giving) {
            self.completions.busy().given();
        }
    }

    /// What the work just given to a stream uses: dropped when that is complete.
    pub(crate) fn carry(&mut self, number: u32, message: u64, used: Used) -> Result<(), DriverError> {
        let full = self.lanes.get_mut(&number).is_some_and(|lane| lane.carry(used));
        if full {
            self.fence(number, message)?;
        }
        Ok(())
    }

    /// A fence that is reached when all that the stream was given is complete. `None`: it is.
    pub(crate) fn fence(&mut self, number: u32, message: u64) -> Result<Option<Arc<Fence>>, DriverError> {
        if self.lanes.get(&number).is_some_and(|lane| self.is_held_up(lane)) {
            // What is asked of the stream comes after the joins, as work of its own would.
            self.work(number)?;
        }
        let unfenced = if number == LEGACY {
            // It waits for the streams that are ordered with it, so it is complete only when they are.
            self.covered != self.ordered
        } else {
            self.lanes.get(&number).is_some_and(Lane::is_dirty)
        };
        if unfenced {
            return self.record(number, message, false).map(Some);
        }
        Ok(self.lanes.get(&number).and_then(Lane::tail).cloned())
    }

    /// Whether there is a join that the stream has not been told to wait for, and that may not be complete.
    fn is_held_up(&self, lane: &Lane) -> bool {
        lane.joined < self.newest_join
            && self
                .joins
                .range(lane.joined + 1..)
                .any(|(_, join)| join.lane != lane.id && !join.fence.is_known_complete())
    }

    /// Records a fence behind all that the stream was given, and the things that this work uses go with it.
    fn record(&mut self, number: u32, message: u64, timed: bool) -> Result<Arc<Fence>, DriverError> {
        let Some(lane) = self.lanes.get_mut(&number) else { unreachable!("the session knows its streams") };
        let (context, id) = (&self.context, lane.id);
        let stream = lane.stream(|config| Stream::create(context, config.non_blocking, config.priority))?;
        let fence = self.fences.record(stream, timed, self.completions.busy().behind(id))?;
        let carried = lane.fenced(&fence);
        self.active.insert(number);
        if number == LEGACY {
            self.covered = self.ordered;
        }
        for used in carried {
            self.completions.add(id, &fence, message, Then::Drop(used));
        }
        Ok(fence)
    }

    /// Has something done when all that the stream was given is complete.
    pub(crate) fn then(&mut self, number: u32, message: u64, then: Then) -> Result<(), DriverError> {
        match self.fence(number, message) {
            Ok(Some(fence)) => {
                self.completions.add(self.lane(number), &fence, message, then);
                Ok(())
            }
            Ok(None) => {
                self.completions.now(then, message);
                Ok(())
            }
            Err(error) => {
                // Nobody must wait for it in vain.
                self.completions.lost(message, &error);
                self.completions.now(then, message);
                Err(error)
            }
        }
    }

    /// The same, with the time at which that is so.
    pub(crate) fn then_timed(
        &mut self,
        number: u32,
        message: u64,
        mark: vgpu_wire::Mark,
    ) -> Result<Arc<Fence>, DriverError> {
        // The stream waits for joins even if it has no work of its own.
        let recorded = self.work(number).map(drop).and_then(|()| self.record(number, message, true));
        match &recorded {
            Ok(fence) => self.completions.add(self.lane(number), fence, message, Then::Timed(mark)),
            Err(error) => {
                self.completions.lost(message, error);
                self.completions.now(Then::Mark(mark), message);
            }
        }
        recorded
    }

    /// Keeps `used` until all that any stream was given is complete, and what that used is free. If that
    /// cannot be found out, `used` goes with the caller's share of it.
    pub(crate) fn after_all(&mut self, message: u64, used: &Used) -> Result<(), DriverError> {
        for number in self.active.clone() {
            let Some(lane) = self.lanes.get(&number) else { continue };
            let (id, dirty, last) = (lane.id, lane.is_dirty(), lane.last().cloned());
            let fence = if dirty {
                let recorded = self.record(number, message, false);
                Some(recorded.inspect_err(|error| self.completions.lost(message, error))?)
            } else {
                last.filter(|fence| !self.is_over(id, fence))
            };
            match fence {
                Some(fence) => self.completions.add(id, &fence, message, Then::Drop(Arc::clone(used))),
                None => {
                    self.active.remove(&number);
                }
            }
        }
        self.forget_ended();
        for (lane, fence) in &self.ended {
            self.completions.add(*lane, fence, message, Then::Drop(Arc::clone(used)));
        }
        Ok(())
    }

    /// Whether a lane's fence is reached, and all that was to be done then has been done.
    fn is_over(&self, lane: u64, fence: &Fence) -> bool {
        fence.is_known_complete() && self.completions.is_settled(lane)
    }

    /// Forgets destroyed streams whose work is over.
    fn forget_ended(&mut self) {
        let mut ended = std::mem::take(&mut self.ended);
        ended.retain(|(lane, fence)| !self.is_over(*lane, fence));
        self.ended = ended;
    }

    /// The fence of a stream's own work; that of streams that it is ordered with does not count.
    fn own_fence(&mut self, number: u32, message: u64) -> Result<Option<Arc<Fence>>, DriverError> {
        let Some(lane) = self.lanes.get(&number) else { return Ok(None) };
        if lane.is_dirty() {
            return self.record(number, message, false).map(Some);
        }
        Ok(lane.tail().cloned())
    }

    /// All later work, on any stream, waits for what `number` was given, or for what all were.
    pub(crate) fn join(&mut self, number: u32, message: u64) -> Result<(), DriverError> {
        if number != JOIN_ALL {
            if let Some(fence) = self.fence(number, message)? {
                self.add_join(self.lane(number), fence);
            }
            return Ok(());
        }
        for number in self.active.clone() {
            if let Some(fence) = self.own_fence(number, message)? {
                self.add_join(self.lane(number), fence);
            }
        }
        self.forget_ended();
        for (lane, fence) in self.ended.clone() {
            self.add_join(lane, fence);
        }
        Ok(())
    }

    fn add_join(&mut self, lane: u64, fence: Arc<Fence>) {
        // A later fence of a lane covers its earlier ones, and all later work is later than both.
        self.joins.retain(|_, join| join.lane != lane);
        if self.joins.len() >= JOINS_MOST {
            // An error shows itself with the next question of the completions' thread.
            self.joins.retain(|_, join| !join.fence.is_complete().unwrap_or(false));
        }
        self.newest_join += 1;
        self.joins.insert(self.newest_join, Join { lane, fence });
    }

    /// Later work of a stream waits for a fence.
    pub(crate) fn wait(&mut self, number: u32, fence: &Fence) -> Result<(), DriverError> {
        if fence.is_known_complete() {
            return Ok(());
        }
        fence.hold_up(self.work(number)?)
    }

    /// What happens when work is complete.
    pub(crate) const fn completions(&self) -> &Completions {
        &self.completions
    }

    /// Whether all that the stream was given is known to be complete, and all that it waits for.
    pub(crate) fn is_idle(&self, number: u32) -> bool {
        let Some(lane) = self.lanes.get(&number) else { return true };
        let ordered = number == LEGACY && self.covered != self.ordered;
        lane.is_idle() && !ordered && !self.is_held_up(lane)
    }

    /// Ends all streams. No work is under way.
    pub(crate) fn end(&mut self) {
        self.completions.stop();
        self.joins.clear();
        self.ended.clear();
        self.lanes.clear();
    }

    /// The number of a stream's lane.
    pub(crate) fn lane(&self, number: u32) -> u64 {
        self.lanes.get(&number).map_or(0, |lane| lane.id)
    }
}
