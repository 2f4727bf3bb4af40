//! Counters of what a session sends to its host, in relaxed atomics.

use std::sync::atomic::{AtomicU64, Ordering};

use vgpu_wire::{Counters, Kind};

/// Returns the index of a kind in the table of kinds.
pub(crate) const fn index_of(kind: Kind) -> usize {
    let mut index = 0;
    while Kind::ALL[index] as u16 != kind as u16 {
        index += 1;
    }
    index
}

/// The counters of an attached session.
#[derive(Debug)]
pub(crate) struct Live {
    kinds: [AtomicU64; Kind::ALL.len()],
    pub(crate) waits: AtomicU64,
    pub(crate) sleeps: AtomicU64,
    pub(crate) doorbells: AtomicU64,
    pub(crate) bytes_in: AtomicU64,
    pub(crate) bytes_out: AtomicU64,
}

impl Live {
    pub(crate) fn new() -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            kinds: std::array::from_fn(|_| zero()),
            waits: zero(),
            sleeps: zero(),
            doorbells: zero(),
            bytes_in: zero(),
            bytes_out: zero(),
        }
    }

    /// Counts a message. The caller holds the ring's lock, so no atomic read-modify-write is needed.
    #[inline]
    pub(crate) fn message(&self, index: usize) {
        let counter = &self.kinds[index];
        counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    pub(crate) fn add(counter: &AtomicU64, more: u64) {
        counter.fetch_add(more, Ordering::Relaxed);
    }

    /// Returns the number of messages of each kind. Kinds without messages are omitted.
    pub(crate) fn kinds(&self) -> impl Iterator<Item = (Kind, u64)> {
        let counts = Kind::ALL.iter().zip(&self.kinds);
        counts.map(|(&kind, count)| (kind, count.load(Ordering::Relaxed))).filter(|&(_, count)| count > 0)
    }

    /// Returns the current values of the counters.
    pub(crate) fn read(&self) -> Counters {
        let (mut messages, mut round_trips) = (0, 0);
        for (kind, count) in self.kinds() {
            messages += count;
            round_trips += if kind.replies() { count } else { 0 };
        }
        Counters {
            messages,
            round_trips,
            waits: self.waits.load(Ordering::Relaxed),
            sleeps: self.sleeps.load(Ordering::Relaxed),
            doorbells: self.doorbells.load(Ordering::Relaxed),
            bytes_in: self.bytes_in.load(Ordering::Relaxed),
            bytes_out: self.bytes_out.load(Ordering::Relaxed),
        }
    }
}
