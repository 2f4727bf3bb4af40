//! Estimates how long waits take, and decides from that whether and when a thread spins or sleeps.

use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::Mutex;
use std::time::Duration;

use crate::channel::Channel;
use crate::mutex::lock;
use crate::sleep::processors;

/// Minimum time that a wait spins: about as long as a wake-up would take.
const SPIN_LEAST: Duration = Duration::from_micros(50);
/// Usual duration from which on a wait naps before it spins.
const LONG: Duration = Duration::from_micros(300);
/// Time by which a nap ends early, because a wake-up takes about that long.
pub(crate) const WAKING: Duration = Duration::from_micros(80);
/// Maximum time that a nap ends before the predicted end, and that a thread spins beyond it.
const MARGIN_MOST: Duration = Duration::from_millis(1);
/// Time that a wait may take beyond its usual duration, in addition to a share of that.
const LATE: Duration = Duration::from_micros(50);

/// Number of threads of this process that spin, on any device.
static SPINNING: AtomicU32 = AtomicU32::new(0);

/// How a wait starts. A thread whose wait is not over after that sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WaitPlan {
    /// Duration of the sleep at the start, which ends shortly before the predicted end; zero for none.
    pub(crate) nap: Duration,
    /// Time from the start of the wait until which the thread spins; zero for not at all.
    pub(crate) spin_until: Duration,
}

impl WaitPlan {
    /// Plan that sleeps from the start.
    const SLEEP: Self = Self { nap: Duration::ZERO, spin_until: Duration::ZERO };
}

/// Returns how far the end of a wait usually is from the prediction.
fn margin(usual: Duration) -> Duration {
    (usual / 8).min(MARGIN_MOST)
}

/// Decides whether spinning pays, for waits of one kind. It does if the other side runs on another processor,
/// and if waits take as long as usual. So a second unsuccessful spin is followed by a wait without one, and
/// each further one by twice as many.
#[derive(Debug, Default)]
struct SpinBackoff {
    /// Number of unsuccessful spins since the last successful one.
    vain: AtomicU32,
    /// Number of waits that are still to sleep at once.
    skipped: AtomicU32,
}

impl SpinBackoff {
    /// Maximum number of waits that sleep at once between two that spin.
    const SKIPPED_MOST: u32 = 63;

    /// Returns whether the wait that starts may spin. Two threads that start at the same time may count as
    /// one, which does no harm.
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

/// Estimate for one kind of wait: its usual duration in nanoseconds, smoothed, 0 until the first wait has
/// ended; the duration of the last one; and whether spinning pays.
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

    /// Updates the estimate with the duration of a wait. Two in a row that take twice the usual time, or half
    /// of it, define the usual time from then on; a single one changes it little. A race between two threads
    /// loses one of the two durations, which does no harm.
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

    /// Updates the estimate with a wait that was over at the first poll, after `slept`: it may have taken any
    /// time below that. The next wait expects half of it.
    pub(crate) fn overslept(&self, slept: Duration) {
        let half = u32::try_from((slept / 2).as_nanos()).unwrap_or(u32::MAX).max(1);
        self.nanoseconds.fetch_min(half, Ordering::Relaxed);
    }

    /// Updates the estimate with a wait that ended while its thread spun.
    pub(crate) fn spun(&self, took: Duration) {
        self.tries.paid();
        self.learn(took);
    }

    /// Records that a thread has spun for the planned time and the wait continues.
    pub(crate) fn spun_in_vain(&self) {
        self.tries.vain();
    }

    /// Returns how the next wait of this kind starts if threads may spin.
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

/// State that determines how the threads of a session wait.
#[derive(Debug)]
pub(crate) struct Pace {
    /// Maximum number of threads of the process that spin at a time.
    spinners: u32,
    /// Whether the host wakes sleeping threads by futex.
    pub(crate) futex: bool,
    /// Number of threads that sleep. It is locked while the count is passed on, so that the host never reads
    /// an older count last.
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

    /// Returns how a wait with this estimate starts.
    pub(crate) fn plan(&self, usual: &WaitEstimate) -> WaitPlan {
        if self.spinners == 0 { WaitPlan::SLEEP } else { usual.plan() }
    }

    /// Counts the calling thread as spinning until the value is dropped. Returns `None` if the maximum number
    /// of threads already spins.
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

/// Counts a thread as spinning while it exists.
#[derive(Debug)]
pub(crate) struct SpinnerGuard;

impl Drop for SpinnerGuard {
    fn drop(&mut self) {
        SPINNING.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Counts a thread as sleeping while it exists.
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
        // One unsuccessful spin has no effect yet.
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
