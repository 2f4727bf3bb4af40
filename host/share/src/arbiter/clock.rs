//! The clock of a scheduler. It stands still while the node process does not run: devices go on without
//! orders then, so nobody owes the time.

use std::time::{Duration, Instant};

use super::follow::SILENCE_MOST;

/// The clock of one scheduler, in nanoseconds from its start.
#[derive(Debug)]
pub(super) struct Clock {
    time: u64,
    /// When `time` was read.
    read: Instant,
}

impl Clock {
    /// Returns a clock that starts now.
    pub(super) const fn new(now: Instant) -> Self {
        Self { time: 0, read: now }
    }

    /// Returns the time after a sleep that was to take `asleep` at most. If it took longer than that and than
    /// devices follow a node process that is silent, the rest does not count.
    pub(super) fn pass(&mut self, now: Instant, asleep: Duration) -> u64 {
        let most = u64::try_from((asleep + SILENCE_MOST).as_nanos()).unwrap_or(u64::MAX);
        self.time = self.at(now).min(self.time.saturating_add(most));
        self.read = now;
        self.time
    }

    /// Returns the time at an instant after the newest reading.
    pub(super) fn at(&self, now: Instant) -> u64 {
        let passed = now.saturating_duration_since(self.read).as_nanos();
        self.time.saturating_add(u64::try_from(passed).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::{Answer, SLICE, Scheduler};

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn time_for_which_the_node_process_does_not_run_is_owed_by_nobody() {
        let start = Instant::now();
        let mut clock = Clock::new(start);
        let mut scheduler = Scheduler::new(SLICE, 0);
        for vm in 0..2 {
            scheduler.join(0, vm, 1);
            let turn = scheduler.order(vm).unwrap().turn;
            scheduler.answer(0, vm, Answer { turn, work: true, in_flight: true });
        }
        // It sleeps for a slice, is stopped, and goes on 10 s later.
        let time = clock.pass(start + 10_000 * MS, SLICE);
        scheduler.tick(time);
        for vm in 0..2 {
            let charged = Duration::from_nanos(scheduler.account(vm).unwrap().charged_ns);
            assert!(charged <= SLICE + SILENCE_MOST, "{charged:?}");
        }
        assert_eq!(clock.at(start + 10_002 * MS) - time, 2_000_000, "it goes on");
    }

    #[test]
    fn sleep_and_small_delays_count() {
        let start = Instant::now();
        let mut clock = Clock::new(start);
        assert_eq!(clock.pass(start + 200 * MS, 200 * MS), 200_000_000);
        assert_eq!(clock.pass(start + 230 * MS, 5 * MS), 230_000_000);
        assert_eq!(clock.pass(start + 230 * MS, Duration::ZERO), 230_000_000);
    }
}
