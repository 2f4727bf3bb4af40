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

/// Session threads of this process that are working or spinning.
static BUSY: AtomicUsize = AtomicUsize::new(0);

/// CPUs that this process may use.
#[must_use]
pub fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Whether one more thread may spin: processors are left over when the session threads that are awake and a
/// guest have theirs.
pub(crate) fn to_spare() -> bool {
    static CPUS: OnceLock<usize> = OnceLock::new();
    Awake::count() + 2 <= *CPUS.get_or_init(cpus)
}

/// A session thread that is not asleep.
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
