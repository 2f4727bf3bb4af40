//! How long waits usually take, and what follows from it: whether a thread spins, when, and who sleeps.

use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::Mutex;
use std::time::Duration;

use crate::channel::Channel;
use crate::mutex::lock;
use crate::sleep::processors;

/// The least time that a wait spins: about as long as it would take to wake.
const SPIN_LEAST: Duration = Duration::from_micros(50);
/// A wait that is usually longer than this naps before it spins.
const LONG: Duration = Duration::from_micros(300);
/// Waking takes this long: a nap ends earlier by it.
pub(crate) const WAKING: Duration = Duration::from_micros(80);
/// How long before the predicted end a nap is over, and how long behind it a thread still spins, at most.
const MARGIN_MOST: Duration = Duration::from_millis(1);
/// What a wait of usual length may take longer, beside its share.
const LATE: Duration = Duration::from_micros(50);

/// Threads of this process that spin, on whichever device.
static SPINNING: AtomicU32 = AtomicU32::new(0);

/// How a wait begins. What is not over by then sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WaitPlan {
    /// It sleeps so long first, until shortly before the predicted end; zero: not at all.
    pub(crate) nap: Duration,
    /// Then it spins until this time from its start; zero: not at all.
    pub(crate) spin_until: Duration,
}

impl WaitPlan {
    /// Sleeping at once.
    const SLEEP: Self = Self { nap: Duration::ZERO, spin_until: Duration::ZERO };
}

/// How far the end of a wait is from what is usual, mostly.
fn margin(usual: Duration) -> Duration {
    (usual / 8).min(MARGIN_MOST)
}

/// Whether spinning pays, in waits of one sort. It does where the other side runs on another processor, and
/// where waits are as long as they usually are. So a second spin in vain is followed by a wait without one,
/// and each further one by twice as many.
#[derive(Debug, Default)]
struct SpinBackoff {
    /// Spins in vain since the last one that paid.
    vain: AtomicU32,
    /// Waits that are still to sleep at once.
    skipped: AtomicU32,
}

impl SpinBackoff {
    /// The most waits that sleep at once, between two that spin.
    const SKIPPED_MOST: u32 = 63;

    /// Whether the wait that starts may spin. Two threads that start at once count as one, which does no
    /// harm.
    fn spins(&self) -> bool {
        let skipped = self.skipped.load(Ordering::Relaxed);
        if skipped > 0 {
            self.skipped.store(skipped - 1, Ordering::Relaxed);
        }
        skipped == 0
    }

    fn paid(&self) {
        if self.vain.load(Ordering::Relaxed) != 0 {
            self.vain.store(0, Ordering::Relaxed);
        }
    }

    fn vain(&self) {
        let vain = self.vain.load(Ordering::Relaxed);
        self.vain.store(vain.saturating_add(1), Ordering::Relaxed);
        let skipped = 2_u32.saturating_pow(vain).saturating_sub(1).min(Self::SKIPPED_MOST);
        self.skipped.store(skipped, Ordering::Relaxed);
    }
}

/// The usual length of one sort of wait in nanoseconds, smoothed, 0 until the first wait has ended; that of
/// the last one; and whether spinning pays.
#[derive(Debug, Default)]
pub(crate) struct WaitEstimate {
    nanoseconds: AtomicU32,
    last: AtomicU32,
    tries: SpinBackoff,
}

impl WaitEstimate {
    pub(crate) const fn new() -> Self {
        let tries = SpinBackoff { vain: AtomicU32::new(0), skipped: AtomicU32::new(0) };
        Self { nanoseconds: AtomicU32::new(0), last: AtomicU32::new(0), tries }
    }

    pub(crate) fn get(&self) -> Duration {
        Duration::from_nanos(u64::from(self.nanoseconds.load(Ordering::Relaxed)))
    }

    /// Takes the length of a wait into account. Two in a row that are twice what is usual, or half of it, are
    /// usual from now on; one alone changes little. A race between two threads loses one of the two lengths,
    /// which does no harm.
    pub(crate) fn learn(&self, took: Duration) {
        let took = u32::try_from(took.as_nanos()).unwrap_or(u32::MAX).max(1);
        let old = self.nanoseconds.load(Ordering::Relaxed);
        let last = self.last.load(Ordering::Relaxed);
        let new = if old == 0 {
            took
        } else if took.min(last) / 2 > old {
            took.min(last)
        } else if took.max(last) < old / 2 {
            took.max(last)
        } else {
            old - old / 4 + took / 4
        };
        self.last.store(took, Ordering::Relaxed);
        self.nanoseconds.store(new.max(1), Ordering::Relaxed);
    }

    /// Takes a wait into account that was over at the first look, after `slept`: it may have taken any time
    /// below that. Half of it is what the next wait expects.
    pub(crate) fn overslept(&self, slept: Duration) {
        let half = u32::try_from((slept / 2).as_nanos()).unwrap_or(u32::MAX).max(1);
        self.nanoseconds.fetch_min(half, Ordering::Relaxed);
    }

    /// A wait ended while its thread spun.
    pub(crate) fn spun(&self, took: Duration) {
        self.tries.paid();
        self.learn(took);
    }

    /// A thread has spun as long as it should, and the wait goes on.
    pub(crate) fn spun_in_vain(&self) {
        self.tries.vain();
    }

    /// How the next wait of this sort begins where threads may spin.
    fn plan(&self) -> WaitPlan {
        if !self.tries.spins() {
            return WaitPlan::SLEEP;
        }
        match self.get() {
            usual if usual > LONG => WaitPlan {
                nap: usual.saturating_sub(margin(usual) + WAKING),
                spin_until: usual + margin(usual) + LATE,
            },
            usual => WaitPlan { nap: Duration::ZERO, spin_until: (2 * usual).max(SPIN_LEAST) },
        }
    }
}

/// How a session waits.
#[derive(Debug)]
pub(crate) struct Pace {
    /// How many threads of the process may spin at a time.
    spinners: u32,
    /// The host wakes sleepers by futex.
    pub(crate) futex: bool,
    /// Number of threads that sleep. Locked while the count is passed on, so that the host never reads an
    /// older count last.
    sleepers: Mutex<u32>,
}

impl Pace {
    pub(crate) fn new(futex: bool) -> Self {
        let processors = u32::try_from(processors()).unwrap_or(u32::MAX);
        // A host that wakes by futex runs in the same kernel and needs a processor. Another's has processors
        // of its own, however few this virtual machine has.
        let spinners = if futex { processors - processors.min(1) } else { processors };
        Self { spinners, futex, sleepers: Mutex::new(0) }
    }

    /// How a wait begins.
    pub(crate) fn plan(&self, usual: &WaitEstimate) -> WaitPlan {
        if self.spinners == 0 { WaitPlan::SLEEP } else { usual.plan() }
    }

    /// The calling thread spins until the value is dropped. `None`: as many do as may.
    pub(crate) fn spinning(&self) -> Option<SpinnerGuard> {
        let others = SPINNING.fetch_add(1, Ordering::Relaxed);
        let spinning = SpinnerGuard;
        (others < self.spinners).then_some(spinning)
    }

    /// Counts the calling thread as a sleeper until the value is dropped, and tells the host so.
    pub(crate) fn asleep<'a>(&'a self, channel: &'a Channel) -> SleeperGuard<'a> {
        let mut sleepers = lock(&self.sleepers);
        *sleepers += 1;
        channel.set_sleepers(*sleepers);
        SleeperGuard { pace: self, channel }
    }
}

/// A thread that spins.
#[derive(Debug)]
pub(crate) struct SpinnerGuard;

impl Drop for SpinnerGuard {
    fn drop(&mut self) {
        SPINNING.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A thread that sleeps, or is about to.
#[derive(Debug)]
pub(crate) struct SleeperGuard<'a> {
    pace: &'a Pace,
    channel: &'a Channel,
}

impl Drop for SleeperGuard<'_> {
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
        let usual = WaitEstimate::default();
        assert_eq!(Pace::new(true).plan(&usual), WaitPlan::SLEEP);
        assert_ne!(Pace::new(false).plan(&usual), WaitPlan::SLEEP);
    }

    #[test]
    fn spinning_follows_what_is_usual() {
        let usual = WaitEstimate::default();
        let at_once = |spin_until| WaitPlan { nap: Duration::ZERO, spin_until };
        assert_eq!(usual.plan(), at_once(SPIN_LEAST));
        usual.learn(Duration::from_micros(40));
        assert_eq!(usual.plan(), at_once(Duration::from_micros(80)));
        for _ in 0..60 {
            usual.learn(Duration::from_millis(8));
        }
        let near = usual.get();
        assert!(Duration::from_millis(8).abs_diff(near) < Duration::from_micros(1), "{near:?}");
        let WaitPlan { nap, spin_until } = usual.plan();
        assert_eq!((nap + MARGIN_MOST + WAKING, near + MARGIN_MOST + LATE), (near, spin_until));
        for _ in 0..80 {
            usual.learn(Duration::from_nanos(300));
        }
        assert_eq!(usual.plan(), at_once(SPIN_LEAST));
        usual.learn(Duration::from_secs(1000));
        assert!(usual.get() > Duration::from_secs(1));
    }

    #[test]
    fn two_waits_of_another_length_are_believed_and_one_is_not() {
        let usual = WaitEstimate::default();
        let [short, long] = [10, 2500].map(Duration::from_micros);
        usual.learn(short);
        usual.learn(long);
        assert!(usual.get() < long / 3, "{:?}", usual.get());
        usual.learn(long);
        assert_eq!(usual.get(), long);
        usual.learn(short);
        assert!(usual.get() > long / 2, "{:?}", usual.get());
        usual.learn(short);
        assert_eq!(usual.get(), short);
    }

    #[test]
    fn spinning_in_vain_becomes_rare_and_one_that_pays_makes_it_usual() {
        let usual = WaitEstimate::default();
        let mut spins = 0;
        for _ in 0..6400 {
            if usual.plan() != WaitPlan::SLEEP {
                usual.spun_in_vain();
                spins += 1;
            }
        }
        assert!((100..110).contains(&spins), "{spins}");
        while usual.plan() == WaitPlan::SLEEP {}
        for _ in 0..100 {
            usual.spun(Duration::from_micros(1));
            assert_ne!(usual.plan(), WaitPlan::SLEEP);
        }
        // One in vain is nothing yet.
        usual.spun_in_vain();
        assert_ne!(usual.plan(), WaitPlan::SLEEP);
    }

    #[test]
    fn no_more_threads_spin_than_there_are_processors_to_spare() {
        // Other tests of this process may spin meanwhile, so there is no telling how many are too many.
        let pace = Pace { spinners: 0, futex: true, sleepers: Mutex::new(0) };
        assert!(pace.spinning().is_none());
        let many = Pace { spinners: u32::MAX, ..pace };
        let before = many.spinning().expect("nobody is left out");
        drop(before);
        assert!(many.spinning().is_some());
    }
}
