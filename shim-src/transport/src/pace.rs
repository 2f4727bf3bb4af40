//! How long waits usually take, and what follows from it: whether a thread spins, for how long, and who
//! sleeps.

use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::Mutex;
use std::time::Duration;

use crate::channel::Channel;
use crate::mutex::lock;
use crate::sleep::processors;

/// Spinning time of a wait about which nothing is known.
const SPIN_UNKNOWN: Duration = Duration::from_micros(50);
/// Spinning time of a wait that is usually long.
const SPIN_LITTLE: Duration = Duration::from_micros(10);
/// A wait that is usually longer than this sleeps; waking then takes a tenth of it or less.
const LONG: Duration = Duration::from_micros(300);

/// The usual length of one sort of wait in nanoseconds, smoothed; 0 until the first wait has ended.
#[derive(Debug, Default)]
pub(crate) struct Usual(AtomicU32);

impl Usual {
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    pub(crate) fn get(&self) -> Duration {
        Duration::from_nanos(u64::from(self.0.load(Ordering::Relaxed)))
    }

    /// Takes the length of a wait into account. A race between two threads loses one of the two lengths,
    /// which does no harm.
    pub(crate) fn learn(&self, took: Duration) {
        let took = u32::try_from(took.as_nanos()).unwrap_or(u32::MAX).max(1);
        let old = self.0.load(Ordering::Relaxed);
        let new = if old == 0 { took } else { old - old / 4 + took / 4 };
        self.0.store(new.max(1), Ordering::Relaxed);
    }

    /// Takes a wait into account that was over at the first look, after `slept`: it may have taken any time
    /// below that. Half of it is what the next wait expects.
    pub(crate) fn overslept(&self, slept: Duration) {
        let half = u32::try_from((slept / 2).as_nanos()).unwrap_or(u32::MAX).max(1);
        self.0.fetch_min(half, Ordering::Relaxed);
    }

    /// How long the next wait of this sort spins before it sleeps.
    pub(crate) fn spin(&self) -> Duration {
        match self.get() {
            Duration::ZERO => SPIN_UNKNOWN,
            usual if usual > LONG => SPIN_LITTLE,
            usual => (2 * usual).max(SPIN_LITTLE),
        }
    }
}

/// How a session waits.
#[derive(Debug)]
pub(crate) struct Pace {
    /// The host can answer while a thread spins: it has another processor than this one.
    pub(crate) spins: bool,
    /// The host wakes sleepers by futex.
    pub(crate) futex: bool,
    /// Number of threads that sleep. Locked while the count is passed on, so that the host never reads an
    /// older count last.
    sleepers: Mutex<u32>,
}

impl Pace {
    pub(crate) fn new(futex: bool) -> Self {
        // A host that wakes by futex runs in the same kernel. Another's has processors of its own, however
        // few this virtual machine has.
        Self { spins: !futex || processors() > 1, futex, sleepers: Mutex::new(0) }
    }

    /// Counts the calling thread as a sleeper until the value is dropped, and tells the host so.
    pub(crate) fn asleep<'a>(&'a self, channel: &'a Channel) -> Asleep<'a> {
        let mut sleepers = lock(&self.sleepers);
        *sleepers += 1;
        channel.set_sleepers(*sleepers);
        Asleep { pace: self, channel }
    }
}

/// A thread that sleeps, or is about to.
#[derive(Debug)]
pub(crate) struct Asleep<'a> {
    pace: &'a Pace,
    channel: &'a Channel,
}

impl Drop for Asleep<'_> {
    fn drop(&mut self) {
        let mut sleepers = lock(&self.pace.sleepers);
        *sleepers -= 1;
        self.channel.set_sleepers(*sleepers);
    }
}

#[cfg(test)]
mod tests {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    use super::*;

    #[test]
    fn with_one_processor_only_the_guest_of_another_kernel_spins() {
        let own = sched_getaffinity(None).unwrap();
        let mut one = CpuSet::new();
        one.set((0..CpuSet::MAX_CPU).find(|&cpu| own.is_set(cpu)).unwrap());
        // This thread alone, which ends with the test.
        sched_setaffinity(None, &one).unwrap();
        assert!(!Pace::new(true).spins);
        assert!(Pace::new(false).spins);
    }

    #[test]
    fn spinning_follows_what_is_usual() {
        let usual = Usual::default();
        assert_eq!(usual.spin(), SPIN_UNKNOWN);
        usual.learn(Duration::from_micros(40));
        assert_eq!(usual.spin(), Duration::from_micros(80));
        for _ in 0..40 {
            usual.learn(Duration::from_millis(8));
        }
        assert_eq!(usual.spin(), SPIN_LITTLE);
        let near = usual.get().as_micros();
        assert!((7900..=8000).contains(&near), "{near}");
        for _ in 0..60 {
            usual.learn(Duration::from_nanos(300));
        }
        assert_eq!(usual.spin(), SPIN_LITTLE);
        usual.learn(Duration::from_secs(1000));
        assert!(usual.get() > Duration::from_secs(1));
    }
}
