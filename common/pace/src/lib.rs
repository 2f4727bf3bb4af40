//! Predicts when a wait ends, and decides from that when its thread sleeps and when it spins.
//!
//! Guest and host wait for each other by these rules. A wait that is usually short spins for twice its usual
//! duration. One that is usually long naps until shortly before the predicted end and spins through it, as
//! the kernel's hybrid polling of block devices does. Spinning that is in vain becomes rare: the other side
//! may need this processor, or may not run at all.
//!
//! All state is atomic, because threads of a program may wait for one event. A race between two of them loses
//! one observation, which does no harm.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Minimum time that a wait spins if it spins from its start: about as long as a wake-up would take.
const SPIN_LEAST: Duration = Duration::from_micros(50);
/// Usual duration from which on a wait naps before it spins.
pub const LONG: Duration = Duration::from_micros(300);
/// Time by which a nap ends early, because a wake-up takes about that long.
pub const WAKING: Duration = Duration::from_micros(80);
/// Least distance from the predicted end to which a thread spins beyond it.
const LATE: Duration = Duration::from_micros(50);
/// Time between two readings of the clock by which a spinning thread knows that it had no processor
/// meanwhile. Others need the processor then, so such a spin counts as one in vain.
pub const PREEMPTED: Duration = Duration::from_micros(200);
/// Longest half of the time through which a wait spins to learn when an end comes of which only bounds are
/// known.
const SEARCH_MOST: Duration = Duration::from_millis(2);
/// Number of deviations around the prediction within which a wait is expected to end.
const DEVIATIONS: u32 = 3;

/// How a wait starts. A thread whose wait is not over after that sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitPlan {
    /// Duration of the sleep at the start, which ends shortly before the predicted end; zero for none.
    pub nap: Duration,
    /// Time from the start of the wait until which the thread spins; zero for not at all.
    pub spin_until: Duration,
}

impl WaitPlan {
    /// Plan that sleeps from the start.
    pub const SLEEP: Self = Self { nap: Duration::ZERO, spin_until: Duration::ZERO };
}

/// Decides whether spinning pays, for waits of one kind. It does if the other side runs on another processor,
/// and if waits take as long as usual. So a second unsuccessful spin is followed by a wait without one, and
/// each further one by twice as many.
#[derive(Debug, Default)]
pub struct SpinBackoff {
    /// Number of unsuccessful spins since the last successful one.
    vain: AtomicU32,
    /// Number of waits that are still to sleep at once.
    skipped: AtomicU32,
}

impl SpinBackoff {
    /// Maximum number of waits that sleep at once between two that spin.
    const SKIPPED_MOST: u32 = 63;

    /// Creates the state of waits that spin.
    #[must_use]
    pub const fn new() -> Self {
        Self { vain: AtomicU32::new(0), skipped: AtomicU32::new(0) }
    }

    /// Returns whether the wait that starts may spin.
    pub fn spins(&self) -> bool {
        let skipped = self.skipped.load(Ordering::Relaxed);
        if skipped > 0 {
            self.skipped.store(skipped - 1, Ordering::Relaxed);
        }
        skipped == 0
    }

    /// Records whether a spin has found the wait over.
    pub fn learn(&self, paid: bool) {
        let vain = self.vain.load(Ordering::Relaxed);
        if paid {
            if vain != 0 {
                self.vain.store(0, Ordering::Relaxed);
            }
            return;
        }
        self.vain.store(vain.saturating_add(1), Ordering::Relaxed);
        let skipped = 2_u32.saturating_pow(vain).saturating_sub(1).min(Self::SKIPPED_MOST);
        self.skipped.store(skipped, Ordering::Relaxed);
    }
}

/// Estimate for one kind of wait. Durations are in nanoseconds.
#[derive(Debug, Default)]
pub struct WaitEstimate {
    /// Usual duration, smoothed; 0 until the first wait has ended.
    usual: AtomicU32,
    /// How far waits usually are from that, smoothed.
    deviation: AtomicU32,
    /// Duration of the last wait.
    last: AtomicU32,
    /// Number of waits in a row of which only bounds are known.
    missed: AtomicU32,
    backoff: SpinBackoff,
}

fn nanoseconds(time: Duration) -> u32 {
    u32::try_from(time.as_nanos()).unwrap_or(u32::MAX).max(1)
}

impl WaitEstimate {
    /// Creates the estimate before the first wait.
    #[must_use]
    pub const fn new() -> Self {
        let [usual, deviation, last, missed] = [const { AtomicU32::new(0) }; 4];
        Self { usual, deviation, last, missed, backoff: SpinBackoff::new() }
    }

    /// Returns the usual duration, or zero if it is not known.
    pub fn get(&self) -> Duration {
        Duration::from_nanos(u64::from(self.usual.load(Ordering::Relaxed)))
    }

    /// Returns how far from the usual duration a wait is expected to end, at most.
    pub fn margin(&self) -> Duration {
        let deviation = Duration::from_nanos(u64::from(self.deviation.load(Ordering::Relaxed)));
        (DEVIATIONS * deviation).min(self.get() / 3).min(SEARCH_MOST)
    }

    fn set(&self, usual: u32, deviation: u32) {
        self.usual.store(usual.max(1), Ordering::Relaxed);
        self.deviation.store(deviation, Ordering::Relaxed);
    }

    /// Updates the estimate with the duration of a wait. Two in a row that take twice the usual time, or half
    /// of it, define the usual time from then on; a single one changes it little.
    pub fn learn(&self, took: Duration) {
        let took = nanoseconds(took);
        let old = self.usual.load(Ordering::Relaxed);
        let last = self.last.swap(took, Ordering::Relaxed);
        self.missed.store(0, Ordering::Relaxed);
        if old == 0 {
            self.set(took, took / 8);
        } else if took.min(last) / 2 > old {
            self.set(took.min(last), took.abs_diff(last));
        } else if took.max(last) < old / 2 {
            self.set(took.max(last), took.abs_diff(last));
        } else {
            let took = took.min(old.saturating_mul(2));
            let deviation = self.deviation.load(Ordering::Relaxed);
            self.set(old - old / 4 + took / 4, deviation - deviation / 4 + old.abs_diff(took) / 4);
        }
    }

    /// Updates the estimate with a wait whose end is only known to have come after `after` and before `by`.
    /// The second of two in a row makes the next wait spin through that time, or the later half of it, and so
    /// learn when the end comes.
    fn learn_between(&self, after: Duration, by: Duration) {
        let (by, old) = (nanoseconds(by), self.usual.load(Ordering::Relaxed));
        let after = nanoseconds(after).clamp(by / 2, by);
        if self.missed.fetch_add(1, Ordering::Relaxed) == 0 && old != 0 {
            let deviation = self.deviation.load(Ordering::Relaxed);
            self.deviation.store(deviation.saturating_mul(2).min(old / 8), Ordering::Relaxed);
        } else {
            self.set(after / 2 + by / 2, (by - after) / 2);
        }
    }

    /// Updates the estimate with a wait that was over at the first poll, after `slept`.
    pub fn overslept(&self, slept: Duration) {
        self.learn_between(Duration::ZERO, slept);
    }

    /// Updates the estimate with a wait that ended while its thread spun, `unseen` after the thread had last
    /// read the clock.
    pub fn spun(&self, took: Duration, unseen: Duration) {
        self.tried(unseen < PREEMPTED);
        self.learn(took);
    }

    /// Records whether a thread that has spun found the wait over, or spun for the planned time in vain.
    pub fn tried(&self, paid: bool) {
        self.backoff.learn(paid);
    }

    /// Updates the estimate with a wait that went on after its thread had spun until `spun`, and that was
    /// over when the thread was woken after `took`. Who woke it may have been late.
    pub fn outlasted(&self, spun: Duration, took: Duration) {
        if spun.is_zero() || self.get() <= LONG && took <= LONG {
            self.learn(took);
        } else {
            self.learn_between(spun.max(took.saturating_sub(2 * SEARCH_MOST)), took);
        }
    }

    /// Returns how the next wait of this kind starts if threads may spin. A thread that naps spins from at
    /// most
    /// `most` before the predicted end.
    pub fn plan(&self, most: Duration) -> WaitPlan {
        if !self.backoff.spins() {
            return WaitPlan::SLEEP;
        }
        let (usual, margin) = (self.get(), self.margin().min(most));
        if usual > LONG {
            let nap = usual.saturating_sub(margin + WAKING);
            WaitPlan { nap, spin_until: usual + margin.max(LATE) }
        } else {
            WaitPlan { nap: Duration::ZERO, spin_until: (2 * usual).max(SPIN_LEAST) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns how late a thread sees ends after `end`, and for how long it spins, if it follows the plan. A
    /// sleeping thread is woken `late` after the end.
    fn wait(usual: &WaitEstimate, end: Duration, late: Duration) -> (Duration, Duration) {
        let WaitPlan { nap, spin_until } = usual.plan(SEARCH_MOST);
        let slept = nap + WAKING.min(nap);
        if end + late < nap {
            usual.learn(end + late);
            return (late, Duration::ZERO);
        }
        if end <= slept && !nap.is_zero() {
            usual.overslept(slept);
            return (slept.saturating_sub(end), Duration::ZERO);
        }
        if end <= spin_until {
            usual.spun(end, Duration::ZERO);
            return (Duration::ZERO, end.saturating_sub(slept));
        }
        if !spin_until.is_zero() {
            usual.tried(false);
        }
        usual.outlasted(spin_until, end + late);
        (late, spin_until.saturating_sub(slept))
    }

    /// Returns a time that differs from `usual` by at most 2 %, another one for each number.
    fn near(usual: Duration, number: u32) -> Duration {
        usual * (980 + number.wrapping_mul(2_654_435_761) % 41) / 1000
    }

    #[test]
    fn ends_of_regular_work_are_seen_by_spinning_through_little_of_it() {
        for micros in [400, 1000, 2000, 8000, 40_000] {
            let (end, late) = (Duration::from_micros(micros), Duration::from_millis(1));
            let usual = WaitEstimate::new();
            for number in 0..100 {
                wait(&usual, near(end, number), late);
            }
            let waits: Vec<_> = (100..1100).map(|number| wait(&usual, near(end, number), late)).collect();
            let on_time = waits.iter().filter(|(late, _)| *late <= Duration::from_micros(50)).count();
            assert!(on_time >= 990, "{on_time} of 1000 at {end:?}");
            let spun: Duration = waits.iter().map(|(_, spun)| spun).sum();
            let least = 1000 * (WAKING + LATE);
            assert!(spun <= 1000 * end / 16 + least, "{:?} of {end:?}", spun / 1000);
        }
    }

    #[test]
    fn the_length_is_found_though_who_wakes_is_late() {
        for (from, to) in [(0, 1000), (50, 8000), (8000, 1000), (8000, 20), (2500, 90_000)] {
            let [from, to] = [from, to].map(Duration::from_micros);
            let (usual, late) = (WaitEstimate::new(), Duration::from_millis(1));
            for _ in 0..30 {
                wait(&usual, from, late);
            }
            let needed = (0..100).position(|_| wait(&usual, to, late).0.is_zero()).unwrap();
            assert!(needed <= 12, "{needed} waits from {from:?} to {to:?}");
        }
    }

    #[test]
    fn spinning_follows_what_is_usual() {
        let usual = WaitEstimate::default();
        let at_once = |spin_until| WaitPlan { nap: Duration::ZERO, spin_until };
        assert_eq!(usual.plan(SEARCH_MOST), at_once(SPIN_LEAST));
        usual.learn(Duration::from_micros(40));
        assert_eq!(usual.plan(SEARCH_MOST), at_once(Duration::from_micros(80)));
        for _ in 0..60 {
            usual.learn(Duration::from_millis(8));
        }
        let near = usual.get();
        assert!(Duration::from_millis(8).abs_diff(near) < Duration::from_micros(1), "{near:?}");
        let WaitPlan { nap, spin_until } = usual.plan(SEARCH_MOST);
        assert!(nap + Duration::from_micros(150) > near && spin_until < near + LATE + LATE, "{nap:?}");
        for _ in 0..80 {
            usual.learn(Duration::from_nanos(300));
        }
        assert_eq!(usual.plan(SEARCH_MOST), at_once(SPIN_LEAST));
        for _ in 0..2 {
            usual.learn(Duration::from_secs(1000));
        }
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
            if usual.plan(SEARCH_MOST) != WaitPlan::SLEEP {
                usual.tried(false);
                spins += 1;
            }
        }
        assert!((100..110).contains(&spins), "{spins}");
        while usual.plan(SEARCH_MOST) == WaitPlan::SLEEP {}
        for _ in 0..100 {
            usual.spun(Duration::from_micros(1), Duration::ZERO);
            assert_ne!(usual.plan(SEARCH_MOST), WaitPlan::SLEEP);
        }
        // A spin whose thread lost the processor is unsuccessful, and one of these has no effect yet.
        usual.spun(Duration::from_millis(1), PREEMPTED);
        assert_ne!(usual.plan(SEARCH_MOST), WaitPlan::SLEEP);
        usual.spun(Duration::from_millis(1), PREEMPTED);
        assert_eq!(usual.plan(SEARCH_MOST), WaitPlan::SLEEP);
    }
}
