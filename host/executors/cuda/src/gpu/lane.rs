//! One stream of the guest's, and what is known of how far its work is.

use std::collections::VecDeque;
use std::sync::Arc;

use vgpu_device::StreamConfig;

use crate::driver::stream::Stream;
use crate::gpu::completion::Used;
use crate::gpu::fence::Fence;

/// Things that unfenced work uses, above which a fence is put behind it, so that they come back.
const CARRIED_MOST: usize = 16;

/// Pieces of work behind a hold above which more is refused. A queue of the driver's takes about a thousand,
/// and who gives it more waits; what would end that wait, the guest's release, is a later message.
const HELD_MOST: u64 = 768;

/// A stream of the guest's.
#[derive(Debug)]
pub(crate) struct Lane {
    /// A number that no other lane of the session has had.
    pub(crate) id: u64,
    pub(crate) config: StreamConfig,
    /// Made when the stream gets its first work.
    stream: Option<Arc<Stream>>,
    /// It was given work, or a wait, since `tail`.
    dirty: bool,
    /// The newest fence.
    tail: Option<Arc<Fence>>,
    /// The newest join that its work waits for.
    pub(crate) joined: u64,
    /// What the work behind `tail` uses.
    carried: Vec<Used>,
    /// Pieces of work that it was given.
    given: u64,
    /// Holds that have not been released, each with the work given before it.
    holds: VecDeque<(u32, u64)>,
}

impl Lane {
    /// A stream without work. It waits for all joins that there are.
    pub(crate) const fn new(id: u64, config: StreamConfig) -> Self {
        Self {
            id,
            config,
            stream: None,
            dirty: false,
            tail: None,
            joined: 0,
            carried: Vec::new(),
            given: 0,
            holds: VecDeque::new(),
        }
    }

    /// The driver's stream; `create` makes it if there is none.
    pub(crate) fn stream<E>(
        &mut self,
        create: impl FnOnce(StreamConfig) -> Result<Stream, E>,
    ) -> Result<&Arc<Stream>, E> {
        if self.stream.is_none() {
            self.stream = Some(Arc::new(create(self.config)?));
        }
        Ok(self.stream.as_ref().expect("it was just made"))
    }

    /// The driver's stream, if it was ever needed.
    pub(crate) const fn made(&self) -> Option<&Arc<Stream>> {
        self.stream.as_ref()
    }

    /// The stream is given work, or a wait. False: as much waits for the guest as may.
    pub(crate) fn begin_work(&mut self) -> bool {
        if self.holds.front().is_some_and(|(_, before)| self.given - before >= HELD_MOST) {
            return false;
        }
        self.given += 1;
        self.dirty = true;
        true
    }

    /// Later work waits for the guest.
    pub(crate) fn hold(&mut self, hold: u32) {
        self.holds.push_back((hold, self.given));
    }

    /// The guest releases a hold, of this stream or of another.
    pub(crate) fn release(&mut self, hold: u32) {
        self.holds.retain(|(held, _)| *held != hold);
    }

    /// Whether there is work behind the newest fence.
    pub(crate) const fn is_dirty(&self) -> bool {
        self.dirty
    }

    /// Whether all work is known to be complete, at the cost of no call.
    pub(crate) fn is_idle(&self) -> bool {
        !self.dirty && self.tail.as_ref().is_none_or(|tail| tail.is_known_complete())
    }

    /// The newest fence.
    pub(crate) const fn last(&self) -> Option<&Arc<Fence>> {
        self.tail.as_ref()
    }

    /// A fence was recorded behind all work. What that work uses is handed over.
    pub(crate) fn fenced(&mut self, fence: &Arc<Fence>) -> Vec<Used> {
        self.dirty = false;
        self.tail = Some(Arc::clone(fence));
        std::mem::take(&mut self.carried)
    }

    /// The newest fence, unless it is known to be reached.
    pub(crate) fn tail(&self) -> Option<&Arc<Fence>> {
        self.tail.as_ref().filter(|tail| !tail.is_known_complete())
    }

    /// The newest work uses something. Whether a fence should be put behind it.
    pub(crate) fn carry(&mut self, used: Used) -> bool {
        self.carried.push(used);
        self.carried.len() >= CARRIED_MOST
    }
}
