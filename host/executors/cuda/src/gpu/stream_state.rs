//! State of one stream of the guest: how far its work is known to be complete, and the holds that it waits
//! for.

use std::collections::VecDeque;
use std::sync::Arc;

use vgpu_device::StreamConfig;

use crate::driver::stream::DriverStream;
use crate::gpu::completion::Retained;
use crate::gpu::fence::Fence;

/// Number of retained values after which a fence is recorded, so that they are dropped.
const CARRIED_MOST: usize = 16;

/// State of one stream.
#[derive(Debug)]
pub(crate) struct StreamState {
    /// Id that no other stream of the session has had.
    pub(crate) id: u64,
    pub(crate) config: StreamConfig,
    /// The driver's stream, created for the first work.
    stream: Option<Arc<DriverStream>>,
    /// Whether the stream was given work, or a wait, after `tail`.
    dirty: bool,
    /// Newest fence of the stream.
    tail: Option<Arc<Fence>>,
    /// Number of the newest join for which its work waits.
    pub(crate) joined: u64,
    /// Values that the work after `tail` uses.
    carried: Vec<Retained>,
    /// Number of the newest hold that the stream's later work waits for, its own or that of another stream,
    /// and 0 if there is none. It may have been released.
    pub(crate) last_hold: u32,
    /// Holds that were not released, the oldest first.
    holds: VecDeque<StreamHold>,
}

/// A point at which a stream waits for the guest.
#[derive(Debug)]
struct StreamHold {
    hold: u32,
    /// Fence after the work before it, or `None` if the work was complete.
    reached: Option<Arc<Fence>>,
}

impl StreamState {
    /// Creates a stream without work.
    pub(crate) const fn new(id: u64, config: StreamConfig) -> Self {
        Self {
            id,
            config,
            stream: None,
            dirty: false,
            tail: None,
            joined: 0,
            carried: Vec::new(),
            last_hold: 0,
            holds: VecDeque::new(),
        }
    }

    /// Returns the driver's stream. Calls `create` if there is none.
    pub(crate) fn stream<E>(
        &mut self,
        create: impl FnOnce(StreamConfig) -> Result<DriverStream, E>,
    ) -> Result<&Arc<DriverStream>, E> {
        if self.stream.is_none() {
            self.stream = Some(Arc::new(create(self.config)?));
        }
        Ok(self.stream.as_ref().expect("it was just made"))
    }

    /// Returns the driver's stream, if one was created.
    pub(crate) const fn made(&self) -> Option<&Arc<DriverStream>> {
        self.stream.as_ref()
    }

    /// Counts a piece of work, or a wait.
    pub(crate) const fn count_work(&mut self) {
        self.dirty = true;
    }

    /// Adds a hold: later work waits for the guest. `reached` is a fence after the work before it.
    pub(crate) fn hold(&mut self, hold: u32, reached: Option<Arc<Fence>>) {
        self.holds.push_back(StreamHold { hold, reached });
        self.last_hold = self.last_hold.max(hold);
    }

    /// Returns whether the stream waits for the guest, or will.
    pub(crate) fn is_held(&self) -> bool {
        !self.holds.is_empty()
    }

    /// Returns the fence after which the stream waits for the guest, unless there was no work before.
    pub(crate) fn before_hold(&self) -> Option<&Arc<Fence>> {
        self.holds.front().and_then(|hold| hold.reached.as_ref())
    }

    /// Removes a hold, which may belong to another stream.
    pub(crate) fn release(&mut self, hold: u32) {
        self.holds.retain(|held| held.hold != hold);
    }

    /// Returns whether there is work after the newest fence.
    pub(crate) const fn is_dirty(&self) -> bool {
        self.dirty
    }

    /// Returns whether all work is known to be complete. Makes no call.
    pub(crate) fn is_idle(&self) -> bool {
        !self.dirty && self.tail.as_ref().is_none_or(|tail| tail.is_known_complete())
    }

    /// Returns the newest fence.
    pub(crate) const fn last(&self) -> Option<&Arc<Fence>> {
        self.tail.as_ref()
    }

    /// Sets the newest fence, which follows all work. Returns the values that the work uses.
    pub(crate) fn fenced(&mut self, fence: &Arc<Fence>) -> Vec<Retained> {
        self.dirty = false;
        self.tail = Some(Arc::clone(fence));
        std::mem::take(&mut self.carried)
    }

    /// Returns the newest fence, unless it is known to be reached.
    pub(crate) fn tail(&self) -> Option<&Arc<Fence>> {
        self.tail.as_ref().filter(|tail| !tail.is_known_complete())
    }

    /// Returns whether values are retained that no fence releases yet.
    pub(crate) const fn is_carrying(&self) -> bool {
        !self.carried.is_empty()
    }

    /// Retains a value for the newest work. Returns whether a fence should be recorded.
    pub(crate) fn carry(&mut self, used: Retained) -> bool {
        self.carried.push(used);
        self.carried.len() >= CARRIED_MOST
    }
}
