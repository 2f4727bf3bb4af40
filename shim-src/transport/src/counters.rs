//! How much a session has said to its host: relaxed counters, read all at once.

use std::sync::atomic::{AtomicU64, Ordering};

use vgpu_wire::Kind;

/// How much a session has said to its host: a copy of its counters at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages written, padding not counted.
    pub messages: u64,
    /// Of these, messages that were answered.
    pub round_trips: u64,
    /// Waits that did not end at once.
    pub waits: u64,
    /// Of these, waits that slept.
    pub sleeps: u64,
    /// Number of doorbells rung.
    pub doorbells: u64,
    /// Bytes copied to the device by `copy_in`.
    pub bytes_in: u64,
    /// Bytes copied from the device by `copy_out`.
    pub bytes_out: u64,
    /// Messages of each kind. Kinds without any are left out.
    pub kinds: Vec<(Kind, u64)>,
}

/// Index of a kind in the table of kinds.
pub(crate) const fn index_of(kind: Kind) -> usize {
    let mut index = 0;
    while Kind::ALL[index] as u16 != kind as u16 {
        index += 1;
    }
    index
}

/// The counters of a living session.
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

    /// Counts a message. Called with the ring locked, so that no locked instruction is needed.
    #[inline]
    pub(crate) fn message(&self, index: usize) {
        let counter = &self.kinds[index];
        counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    pub(crate) fn add(counter: &AtomicU64, more: u64) {
        counter.fetch_add(more, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> Counters {
        let kinds: Vec<(Kind, u64)> = Kind::ALL
            .iter()
            .zip(&self.kinds)
            .map(|(&kind, count)| (kind, count.load(Ordering::Relaxed)))
            .filter(|&(_, count)| count > 0)
            .collect();
        let sum = |wanted: &dyn Fn(Kind) -> bool| {
            kinds.iter().filter(|&&(kind, _)| wanted(kind)).map(|&(_, count)| count).sum()
        };
        Counters {
            messages: sum(&|_| true),
            round_trips: sum(&Kind::replies),
            waits: self.waits.load(Ordering::Relaxed),
            sleeps: self.sleeps.load(Ordering::Relaxed),
            doorbells: self.doorbells.load(Ordering::Relaxed),
            bytes_in: self.bytes_in.load(Ordering::Relaxed),
            bytes_out: self.bytes_out.load(Ordering::Relaxed),
            kinds,
        }
    }
}
