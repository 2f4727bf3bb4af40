//! The device's work: what streams were given, in which order it may complete, and the effects of its
//! completion.

use std::collections::{BTreeMap, HashMap};

use vgpu_abi::driver::wait_value;

use crate::handle;
use crate::memory::AddressRange;
use crate::options::CompletionOrder;
use crate::raw::{self, HostFunction};

/// Number of channels that the streams share, CUDA's default.
const CHANNELS: usize = 8;

/// A stream of a context. Number 0 is the context's legacy default stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StreamKey {
    /// Handle of the context.
    pub context: usize,
    /// Handle of the stream.
    pub stream: usize,
    /// Whether the stream runs in order with the legacy default stream.
    pub blocking: bool,
}

/// Effect of a piece of work when it completes, besides that later work may continue.
#[derive(Clone, Copy, Debug)]
pub enum Effect {
    /// Writes a word of host memory.
    Write {
        /// Address of the word in the program.
        address: usize,
        /// Size of the word in bytes, 4 or 8.
        bytes: usize,
        /// Value that is written.
        value: u64,
    },
    /// Has no effect, but completes only when a word of host memory satisfies the comparison.
    Wait {
        /// Address of the word in the program.
        address: usize,
        /// Size of the word in bytes, 4 or 8.
        bytes: usize,
        /// Value with which the word is compared.
        value: u64,
        /// Flags of the wait, which select the comparison.
        flags: u32,
    },
    /// Sets the time of an event, unless the event has been recorded again.
    Record {
        /// Handle of the event.
        event: usize,
    },
    /// Counts a kernel that has ended.
    Kernel,
    /// Has no effect, but completes only when a function of the program has returned.
    Call(HostFunction),
}

impl Effect {
    /// Returns whether the effect can happen now.
    fn is_due(&self) -> bool {
        let Self::Wait { address, bytes, value, flags } = *self else { return true };
        let word = raw::load(address, bytes);
        let mask = if bytes == 4 { u64::from(u32::MAX) } else { u64::MAX };
        match flags & !wait_value::FLUSH {
            wait_value::EQ => word == value & mask,
            wait_value::AND => word & value != 0,
            wait_value::NOR => !(word | value) & mask != 0,
            _ if bytes == 4 => (word as u32).wrapping_sub(value as u32).cast_signed() >= 0,
            _ => word.wrapping_sub(value).cast_signed() >= 0,
        }
    }
}

/// A piece of work that is not complete.
#[derive(Debug)]
struct PendingWork {
    lane: StreamKey,
    /// Numbers of the pieces of work that complete before this one.
    after: Vec<u64>,
    effects: Vec<Effect>,
    /// Whether a function of the program was called for the work and has not returned.
    calling: bool,
    /// Ranges of device and host memory that the work reads or writes.
    uses: Vec<AddressRange>,
}

/// A piece of work that is complete.
#[derive(Debug)]
pub struct Completed {
    /// Handle of the work's context.
    pub context: usize,
    /// Number of the piece of work.
    pub number: u64,
    pub effects: Vec<Effect>,
}

/// All incomplete work of the process.
#[derive(Debug, Default)]
pub struct WorkQueue {
    next: u64,
    pending: BTreeMap<u64, PendingWork>,
    /// Number of the newest work of each stream.
    newest: HashMap<StreamKey, u64>,
    /// Numbers of the work that later work of a stream waits for.
    waits: HashMap<StreamKey, Vec<u64>>,
}

impl WorkQueue {
    /// Adds work to a stream and returns its number.
    pub fn push(&mut self, lane: StreamKey, effects: Vec<Effect>, uses: Vec<AddressRange>) -> u64 {
        let mut after = self.waits.remove(&lane).unwrap_or_default();
        after.extend(self.newest.get(&lane));
        // By "Stream synchronization behavior", the legacy stream and blocking streams wait for each other.
        let together = |other: &StreamKey| {
            other.context == lane.context
                && lane.blocking
                && other.blocking
                && (other.stream == 0) != (lane.stream == 0)
        };
        after.extend(self.newest.iter().filter(|(other, _)| together(other)).map(|(_, number)| number));
        after.retain(|number| self.pending.contains_key(number));
        self.next += 1;
        self.pending.insert(self.next, PendingWork { lane, after, effects, calling: false, uses });
        self.newest.insert(lane, self.next);
        self.next
    }

    /// Makes later work of a stream wait for a piece of work.
    pub fn wait(&mut self, lane: StreamKey, number: u64) {
        if self.pending.contains_key(&number) {
            self.waits.entry(lane).or_default().push(number);
        }
    }

    /// Returns whether a piece of work is not complete.
    pub fn is_pending(&self, number: u64) -> bool {
        self.pending.contains_key(&number)
    }

    /// Returns whether a stream has work that is not complete.
    pub fn is_busy(&self, context: usize, stream: usize) -> bool {
        self.pending.values().any(|item| item.lane.context == context && item.lane.stream == stream)
    }

    /// Returns whether a context has work that is not complete.
    pub fn has_work(&self, context: usize) -> bool {
        self.pending.values().any(|item| item.lane.context == context)
    }

    /// Returns whether a channel has more than `most` pieces of work that are not complete.
    pub fn exceeds(&self, most: usize) -> bool {
        let mut channels = [0; CHANNELS];
        for item in self.pending.values() {
            channels[handle::index(item.lane.stream) % CHANNELS] += 1;
        }
        channels.iter().any(|&count| count > most)
    }

    /// Returns whether work that is not complete uses a range.
    pub fn uses(&self, range: AddressRange) -> bool {
        self.pending.values().any(|item| item.uses.iter().any(|used| used.overlaps(range)))
    }

    /// Returns whether all work is complete.
    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Returns the number of a piece of work that can complete now.
    pub fn due(&self, order: CompletionOrder) -> Option<u64> {
        let due = |item: &PendingWork| {
            !item.calling
                && item.after.iter().all(|number| !self.pending.contains_key(number))
                && item.effects.iter().all(Effect::is_due)
        };
        let mut numbers = self.pending.iter().filter(|(_, item)| due(item)).map(|(&number, _)| number);
        match order {
            CompletionOrder::Oldest => numbers.next(),
            CompletionOrder::Newest => numbers.next_back(),
        }
    }

    /// Returns a function that has to return before a piece of work is complete. Each is returned only once,
    /// and the work does not go on before [`WorkQueue::returned`].
    pub fn host_function(&mut self, number: u64) -> Option<HostFunction> {
        let item = self.pending.get_mut(&number)?;
        let at = item.effects.iter().position(|effect| matches!(effect, Effect::Call(_)))?;
        let Effect::Call(function) = item.effects.remove(at) else { return None };
        item.calling = true;
        Some(function)
    }

    /// Records that the function of a piece of work has returned.
    pub fn returned(&mut self, number: u64) {
        if let Some(item) = self.pending.get_mut(&number) {
            item.calling = false;
        }
    }

    /// Completes a piece of work.
    pub fn complete(&mut self, number: u64) -> Option<Completed> {
        let item = self.pending.remove(&number)?;
        Some(Completed { context: item.lane.context, number, effects: item.effects })
    }

    /// Drops the work of a context that is lost or destroyed.
    pub fn drop_context(&mut self, context: usize) {
        self.pending.retain(|_, item| item.lane.context != context);
        self.newest.retain(|lane, _| lane.context != context);
        self.waits.retain(|lane, _| lane.context != context);
    }
}
