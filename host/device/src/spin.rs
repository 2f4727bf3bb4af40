//! Waits of a session thread for the next message: when it polls its ring, and when it sleeps.
//!
//! A thread that sleeps takes tens of microseconds to wake, and one that spins a tenth of a microsecond. So a
//! thread spins for a time that follows the length of its usual waits, within bounds, and not at all if other
//! threads need the CPUs. Longer waits often have a usual length of their own, such as those of a program
//! that decodes one token after the other: it submits work, waits for the GPU, and submits work again. In
//! such waits a thread sleeps until shortly before the next message is expected, and spins again.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use vgpu_pace::{PREEMPTED, SpinBackoff, WaitEstimate, WaitPlan};

/// Bounds of the time to spin, in a wait that may spin at all.
const LEAST: Duration = Duration::from_micros(10);
const MOST: Duration = Duration::from_micros(100);
/// Initial time to spin, because a first answer usually leads to the next message at once.
const FIRST: Duration = Duration::from_micros(50);

/// A thread for which spinning does not pay still spins in one of this many waits: the other side tries as
/// seldom, and its spin pays only if this thread is awake.
const TRIED_EVERY: u32 = 4;

/// Number of polls between two readings of the clock while spinning.
const LOOKS: u32 = 16;
/// Longest wait whose end is predicted. A prediction of longer waits is not worth its cost.
const EXPECTED_MOST: Duration = Duration::from_millis(50);
/// Maximum margin around the predicted time of a message.
const MARGIN_MOST: Duration = Duration::from_micros(250);

/// Number of session threads of this process that work or spin, and of calls of version 1 in progress.
static BUSY: AtomicUsize = AtomicUsize::new(0);

/// Returns the number of CPUs that this process may use.
#[must_use]
pub fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Returns whether one more thread may spin: a CPU is left over if every awake thread and `beside` further
/// threads, among them a guest's, use one.
#[must_use]
pub fn has_spare_cpus(beside: usize) -> bool {
    static CPUS: OnceLock<usize> = OnceLock::new();
    Awake::count() + beside < *CPUS.get_or_init(cpus)
}

/// Counts a session thread that is awake, or a call of version 1 in progress, while it lives.
#[derive(Debug)]
pub struct Awake;

impl Awake {
    /// Counts one more awake thread until the value is dropped.
    #[must_use]
    pub fn start() -> Self {
        BUSY.fetch_add(1, Ordering::Relaxed);
        Self
    }

    /// Returns the number of threads that are awake, including the caller.
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

/// Result of polling for the next message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitEvent {
    /// There is no message yet.
    Nothing,
    /// There is a message.
    News,
    /// The thread is to stop waiting.
    End,
}

/// Decides how long one thread spins before it sleeps.
#[derive(Debug)]
pub struct SpinBudget {
    cpus: usize,
    spin: Duration,
    /// Whether it pays to spin at the start of a wait. It does not if this thread has the other side's CPU.
    tries: SpinBackoff,
    /// Number of waits so far.
    waits: u32,
    /// Usual length of waits that are longer than a spin.
    rhythm: WaitEstimate,
}

/// Polls without a pause until `until` has passed since `start`, or until the thread has lost its CPU for a
/// while. Returns the event that it saw, and whether the spin paid.
fn spin(start: Instant, until: Duration, look: &mut impl FnMut() -> WaitEvent) -> (WaitEvent, bool) {
    let mut read = start.elapsed();
    while read < until {
        for _ in 0..LOOKS {
            let seen = look();
            if seen != WaitEvent::Nothing {
                return (seen, start.elapsed().saturating_sub(read) < PREEMPTED);
            }
            std::hint::spin_loop();
        }
        let now = start.elapsed();
        if now.saturating_sub(read) >= PREEMPTED {
            break;
        }
        read = now;
    }
    (WaitEvent::Nothing, false)
}

impl SpinBudget {
    /// Makes the budget of a thread in a process that may use this number of CPUs.
    #[must_use]
    pub fn new(cpus: usize) -> Self {
        Self { cpus, spin: FIRST, tries: SpinBackoff::new(), waits: 0, rhythm: WaitEstimate::new() }
    }

    /// Waits until `look` returns something other than [`WaitEvent::Nothing`]. `busy` returns the number of
    /// session threads that are awake. `sleep` sleeps until the thread is woken, but at most for the given
    /// time, and returns the event that it then sees.
    pub fn wait(
        &mut self,
        busy: impl Fn() -> usize,
        mut look: impl FnMut() -> WaitEvent,
        mut sleep: impl FnMut(Option<Duration>) -> WaitEvent,
    ) -> WaitEvent {
        let start = Instant::now();
        let mut seen = WaitEvent::Nothing;
        let budget = self.now(busy());
        self.waits = self.waits.wrapping_add(1);
        if !budget.is_zero() && (self.tries.spins() || self.waits.is_multiple_of(TRIED_EVERY)) {
            let paid;
            (seen, paid) = spin(start, budget, &mut look);
            self.tries.learn(paid);
        }
        // A thread that may not spin need not wake for it.
        if seen == WaitEvent::Nothing
            && !self.now(busy()).is_zero()
            && self.rhythm.get() <= EXPECTED_MOST
            && let WaitPlan { nap, spin_until } = self.rhythm.plan(MARGIN_MOST)
            && !nap.is_zero()
        {
            seen = sleep(Some(nap.saturating_sub(start.elapsed())));
            if seen == WaitEvent::Nothing && !self.now(busy()).is_zero() {
                let paid;
                (seen, paid) = spin(start, spin_until, &mut look);
                self.rhythm.tried(paid);
            }
        }
        if seen == WaitEvent::Nothing {
            seen = sleep(None);
        }
        self.learn(start.elapsed());
        seen
    }

    /// Returns how long to spin now, with `busy` session threads awake: not at all if that leaves the guest
    /// no CPU.
    #[must_use]
    fn now(&self, busy: usize) -> Duration {
        if busy + 1 > self.cpus { Duration::ZERO } else { self.spin }
    }

    /// Learns the length of a wait, whether the thread slept or not. A wait that ended in time, or would have
    /// with a somewhat longer spin, makes the next spin longer. A long wait makes it shorter.
    fn learn(&mut self, waited: Duration) {
        if waited > MOST {
            self.rhythm.learn(waited);
        }
        let target = if waited <= MOST { (waited * 3).clamp(LEAST, MOST) } else { LEAST };
        // The time grows quickly, because a spin that is too short costs a wake-up, and one that is too long
        // only its own time.
        self.spin = if target > self.spin { (self.spin + target) / 2 } else { (self.spin * 7 + target) / 8 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_spinning_where_the_cpus_are_needed() {
        assert_eq!(SpinBudget::new(1).now(1), Duration::ZERO);
        assert_eq!(SpinBudget::new(2).now(1), FIRST);
        assert_eq!(SpinBudget::new(2).now(2), Duration::ZERO);
        assert_eq!(SpinBudget::new(8).now(7), FIRST);
    }

    #[test]
    fn a_thread_that_has_the_other_sides_cpu_gives_up_spinning() {
        let (mut budget, mut spins) = (SpinBudget::new(4), 0);
        for _ in 0..640 {
            let mut looked = false;
            let look = || {
                looked = true;
                WaitEvent::Nothing
            };
            // The message comes as soon as this thread sleeps.
            assert_eq!(budget.wait(|| 1, look, |_| WaitEvent::News), WaitEvent::News);
            spins += u32::from(looked);
        }
        // A quarter, and some more or less where this thread lost its processor.
        assert!((100..320).contains(&spins), "{spins}");
    }

    /// Waits for a message that comes after `end`. Returns whether the thread saw it while it spun.
    fn spins_through(budget: &mut SpinBudget, end: Duration) -> bool {
        let (start, mut slept) = (Instant::now(), false);
        let over = || start.elapsed() >= end;
        let look = || if over() { WaitEvent::News } else { WaitEvent::Nothing };
        let sleep = |limit: Option<Duration>| {
            slept |= limit.is_none();
            let left = end.saturating_sub(start.elapsed());
            std::thread::sleep(limit.map_or(left, |limit| limit.min(left)));
            look()
        };
        assert_eq!(budget.wait(|| 1, look, sleep), WaitEvent::News);
        !slept
    }

    #[test]
    fn a_message_that_comes_at_its_usual_time_finds_the_thread_awake() {
        let end = Duration::from_millis(3);
        let mut budget = SpinBudget::new(4);
        assert!(!spins_through(&mut budget, end), "nothing is known yet");
        // A busy machine may miss many.
        let awake = (0..20_000).filter(|_| spins_through(&mut budget, end)).take(10).count();
        assert_eq!(awake, 10);
    }

    #[test]
    fn a_thread_that_has_no_cpu_to_spare_sleeps() {
        let mut budget = SpinBudget::new(1);
        for _ in 0..5 {
            assert!(!spins_through(&mut budget, Duration::from_millis(1)));
        }
    }

    #[test]
    fn the_budget_follows_the_waits_and_stays_within_bounds() {
        let mut budget = SpinBudget::new(4);
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
