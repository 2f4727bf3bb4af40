//! How long a session thread looks at its ring before it sleeps.
//!
//! A thread that sleeps takes tens of microseconds to wake, one that spins a tenth of one. So a
//! thread spins for a time that follows what its waits usually take, within bounds, and not at all
//! when the CPUs are needed by others.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// The shortest and the longest time to spin.
const LEAST: Duration = Duration::from_micros(10);
const MOST: Duration = Duration::from_micros(100);
/// Where a session begins: a first answer usually leads to the next message at once.
const FIRST: Duration = Duration::from_micros(50);

/// Session threads of this process that are working or spinning, and calls of version 1 under way.
static BUSY: AtomicUsize = AtomicUsize::new(0);

/// CPUs that this process may use.
#[must_use]
pub fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Whether one more thread may spin: a CPU is left over when everything that is awake and `beside` further
/// threads, among them a guest's, have theirs.
pub(crate) fn to_spare(beside: usize) -> bool {
    static CPUS: OnceLock<usize> = OnceLock::new();
    Awake::count() + beside < *CPUS.get_or_init(cpus)
}

/// A session thread that is not asleep, or a call of version 1 under way, which somebody executes.
#[derive(Debug)]
pub struct Awake;

impl Awake {
    pub(crate) fn new() -> Self {
        BUSY.fetch_add(1, Ordering::Relaxed);
        Self
    }

    /// How many are awake, the caller among them.
    #[must_use]
    pub fn count() -> usize {
        BUSY.load(Ordering::Relaxed)
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        BUSY.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Whether a thread spins before it sleeps, in waits that are all short or all long: it does so as long as
/// that pays. Spinning pays where the other side runs on another CPU. Where the scheduler has put both on
/// one, the other side runs only once this one sleeps, and each spin is time lost. So a spin in vain is
/// followed by waits without one, twice as many after each further spin in vain.
#[derive(Debug, Default)]
pub(crate) struct Tries {
    /// Spins in vain since the last one that paid.
    vain: u32,
    /// Waits that are still to sleep at once.
    skipped: u32,
}

impl Tries {
    /// The most waits that sleep at once, between two that spin.
    const SKIPPED_MOST: u32 = 63;

    /// Whether to spin in the wait that starts.
    pub(crate) const fn spins(&mut self) -> bool {
        let spins = self.skipped == 0;
        self.skipped = self.skipped.saturating_sub(1);
        spins
    }

    /// A spin has ended: with what it waited for, or in vain.
    pub(crate) fn learn(&mut self, paid: bool) {
        self.vain = if paid { 0 } else { self.vain.saturating_add(1) };
        self.skipped = 2u32.saturating_pow(self.vain).saturating_sub(1).min(Self::SKIPPED_MOST);
    }
}

/// The time that one thread spins.
#[derive(Debug)]
pub struct Budget {
    cpus: usize,
    spin: Duration,
}

impl Budget {
    /// For a process that may use so many CPUs.
    #[must_use]
    pub const fn new(cpus: usize) -> Self {
        Self { cpus, spin: FIRST }
    }

    /// How long to spin now, with `busy` session threads awake. One CPU is left to the guest.
    #[must_use]
    pub fn now(&self, busy: usize) -> Duration {
        if busy + 1 > self.cpus { Duration::ZERO } else { self.spin }
    }

    /// A wait took `waited`, asleep or not. What ended in time, or would have with a somewhat longer
    /// spin, makes the next spin longer; a long wait makes it shorter, since spinning was for nothing.
    pub fn learn(&mut self, waited: Duration) {
        let target = if waited <= MOST { (waited * 3).clamp(LEAST, MOST) } else { LEAST };
        // Quick to grow: a wait that is cut short costs a wake-up, a spin too long only its own time.
        self.spin = if target > self.spin { (self.spin + target) / 2 } else { (self.spin * 7 + target) / 8 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_spinning_where_the_cpus_are_needed() {
        assert_eq!(Budget::new(1).now(1), Duration::ZERO);
        assert_eq!(Budget::new(2).now(1), FIRST);
        assert_eq!(Budget::new(2).now(2), Duration::ZERO);
        assert_eq!(Budget::new(8).now(7), FIRST);
    }

    #[test]
    fn spinning_in_vain_becomes_rare_and_one_that_pays_makes_it_usual() {
        let mut tries = Tries::default();
        let mut spins = 0;
        for _ in 0..6400 {
            if tries.spins() {
                tries.learn(false);
                spins += 1;
            }
        }
        assert!((100..110).contains(&spins), "{spins}");
        while !tries.spins() {}
        tries.learn(true);
        for _ in 0..100 {
            assert!(tries.spins());
            tries.learn(true);
        }
    }

    #[test]
    fn the_budget_follows_the_waits_and_stays_within_bounds() {
        let mut budget = Budget::new(4);
        for _ in 0..100 {
            budget.learn(Duration::from_millis(5));
        }
        assert!(budget.spin < LEAST * 2, "{:?}", budget.spin);
        for _ in 0..6 {
            budget.learn(Duration::from_micros(20));
        }
        assert!(budget.spin > Duration::from_micros(40), "{:?}", budget.spin);
        for _ in 0..100 {
            budget.learn(MOST);
        }
        assert!(budget.spin <= MOST);
        for _ in 0..200 {
            budget.learn(Duration::from_nanos(300));
        }
        assert!((LEAST..LEAST * 2).contains(&budget.spin), "{:?}", budget.spin);
    }
}
