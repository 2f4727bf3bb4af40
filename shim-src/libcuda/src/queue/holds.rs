//! Holds of a device's streams: which host functions have not returned yet, and how much work waits for them.
//!
//! The driver's queues take about a thousand entries each, and streams share them. While the driver blocks,
//! the host reads no more messages, not even those that the program, and so the function, waits for. So the
//! guest's thread blocks before that, as it would if it called the driver itself.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, PoisonError};

use crate::sync::Mutex;

/// Weight of the waiting messages of all streams from which on streams wait for room. Each hold may still add
/// its part of half as much ([`HoldState::is_full`]). The host refuses work beyond 768 pieces.
const WAITING_MOST: u64 = 450;
/// Weight of a message: the maximum number of pieces of the host's work that it takes. Large triangular
/// solves take more, and so do large copies if the host's driver does not register the guest's memory: the
/// host may refuse those.
const MESSAGE: u64 = 2;
/// Weight of a host function: its hold, the mark before it and the signal after it.
const FUNCTION: u64 = 6;

/// The streams of the device that a stream waits for implicitly, by CUDA's rules for the legacy default
/// stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Implicit {
    /// The stream waits for no other stream.
    Nothing,
    /// The stream waits for the legacy default stream.
    Legacy,
    /// The stream is the legacy default stream, and waits for every stream that waits for it.
    Blocking,
}

/// Host functions of a device's streams. They are called in the order of their holds' numbers.
#[derive(Debug, Default)]
pub struct Holds {
    /// Number of functions that have not returned yet.
    open: AtomicU32,
    /// Newest hold that work of the legacy stream waits for, and below it the newest hold of a stream that
    /// the legacy stream waits for.
    legacy: AtomicU32,
    blocking: AtomicU32,
    state: Mutex<HoldState>,
    news: Condvar,
}

#[derive(Debug, Default)]
struct HoldState {
    /// Number of the hold whose function returned last.
    released: u32,
    /// Weight of the messages whose last hold is this one, for each hold in ascending order.
    waiting: VecDeque<(u32, u64)>,
}

impl HoldState {
    /// Returns whether a message that waits for `hold` has to wait for room. A hold that little waits for
    /// keeps a part of the room, so that one stream's work does not take all of it.
    fn is_full(&self, hold: u32) -> bool {
        let all: u64 = self.waiting.iter().map(|(_, weight)| weight).sum();
        let own = self.waiting.iter().find(|(number, _)| *number == hold).map_or(0, |(_, weight)| *weight);
        hold > self.released && all >= WAITING_MOST && own * self.waiting.len() as u64 >= WAITING_MOST / 2
    }

    fn add(&mut self, hold: u32, weight: u64) {
        if hold <= self.released {
            return;
        }
        let at = self.waiting.partition_point(|&(number, _)| number < hold);
        match self.waiting.get_mut(at) {
            Some((number, all)) if *number == hold => *all += weight,
            _ => self.waiting.insert(at, (hold, weight)),
        }
    }
}

impl Holds {
    /// Returns whether a stream is held.
    #[inline]
    pub fn any(&self) -> bool {
        self.open.load(Ordering::Acquire) != 0
    }

    /// Counts a function that is about to be submitted.
    pub fn begin(&self) {
        self.open.fetch_add(1, Ordering::AcqRel);
    }

    /// Counts a function that could not be submitted.
    pub fn cancel(&self) {
        self.open.fetch_sub(1, Ordering::AcqRel);
    }

    /// Records that the function of a hold has returned.
    pub fn end(&self, hold: u32) {
        let mut state = self.state.lock();
        state.released = hold;
        while state.waiting.pop_front_if(|&mut (number, _)| number <= hold).is_some() {}
        drop(state);
        self.open.fetch_sub(1, Ordering::AcqRel);
        self.news.notify_all();
    }

    /// Returns the newest hold that later work of a stream waits for. `own` is the newest hold of the stream
    /// itself.
    pub fn last(&self, own: u32, implicit: Implicit) -> u32 {
        match implicit {
            Implicit::Nothing => own,
            Implicit::Legacy => own.max(self.legacy.load(Ordering::Acquire)),
            Implicit::Blocking => own.max(self.blocking.load(Ordering::Acquire)),
        }
    }

    /// Counts a host function of a stream.
    pub fn hold(&self, hold: u32, implicit: Implicit) {
        if implicit != Implicit::Nothing {
            self.blocking.fetch_max(hold, Ordering::AcqRel);
        }
        if implicit == Implicit::Blocking {
            self.legacy.fetch_max(hold, Ordering::AcqRel);
        }
        self.state.lock().add(hold, FUNCTION);
    }

    /// Counts a message whose last hold is `hold`, unless that hold's function has returned.
    #[cold]
    pub fn count(&self, hold: u32, implicit: Implicit) {
        if implicit == Implicit::Blocking {
            self.legacy.fetch_max(hold, Ordering::AcqRel);
        }
        self.state.lock().add(hold, MESSAGE);
    }

    /// Waits while the function of `hold` has not returned and too much work waits for functions.
    #[cold]
    pub fn wait_for_room(&self, hold: u32) {
        let mut state = self.state.lock();
        while state.is_full(hold) {
            state = self.news.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(holds: &Holds, hold: u32) -> u64 {
        let mut count = 0;
        while !holds.state.lock().is_full(hold) {
            holds.count(hold, Implicit::Nothing);
            count += 1;
        }
        count
    }

    #[test]
    fn all_streams_share_the_room_and_each_has_a_part() {
        let holds = Holds::default();
        for hold in 1..=3 {
            holds.begin();
            holds.hold(hold, Implicit::Nothing);
        }
        let first = fill(&holds, 1);
        assert!((180..=225).contains(&first), "{first}");
        let (second, third) = (fill(&holds, 2), fill(&holds, 3));
        assert!((20..=60).contains(&second) && (20..=60).contains(&third), "{second} {third}");
        assert!((first + second + third) * MESSAGE + 3 * FUNCTION <= 768);
        // Room comes with the function behind which most waits, and no stream waits for one that has
        // returned.
        holds.end(1);
        assert!(!holds.state.lock().is_full(1) && !holds.state.lock().is_full(2));
        assert!(fill(&holds, 2) > 100);
        holds.end(2);
        holds.end(3);
        assert!(!holds.any() && holds.state.lock().waiting.is_empty());
    }

    #[test]
    fn the_legacy_stream_passes_holds_on() {
        let holds = Holds::default();
        holds.begin();
        holds.hold(5, Implicit::Legacy);
        assert_eq!(holds.last(0, Implicit::Legacy), 0, "nothing of the legacy stream lies between");
        assert_eq!(holds.last(0, Implicit::Nothing), 0);
        let legacy = holds.last(0, Implicit::Blocking);
        assert_eq!(legacy, 5);
        holds.count(legacy, Implicit::Blocking);
        assert_eq!(holds.last(0, Implicit::Legacy), 5);
        assert_eq!(holds.last(7, Implicit::Legacy), 7);
    }
}
