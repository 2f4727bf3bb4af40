//! Schedule by which a thread polls for the end of a wait from which nothing wakes it, or too late.
//!
//! It sleeps until shortly before the end that earlier waits predict, then polls in steps that grow with the
//! time by which the end is overdue. Such a thread never learns when the end came, only between which two
//! polls. So it must poll before the predicted end: a thread that slept until then would find the wait over,
//! learn the duration of its own sleep, and predict that forever, even once a wait takes a thousandth of it.

use std::time::Duration;

use vgpu_pace::WAKING;

/// Shortest sleep between polls; the kernel's timer slack alone is 50 µs.
const STEP_LEAST: Duration = Duration::from_micros(20);
/// Longest step between polls for an end that is overdue.
const STEP_MOST: Duration = Duration::from_millis(20);

/// Times at which one wait polls.
#[derive(Debug)]
pub(crate) struct PollSchedule {
    /// Time from the start of the wait until the first poll, which follows the predicted sleep; zero without
    /// such a sleep.
    first: Duration,
}

impl PollSchedule {
    /// Creates the schedule for a wait that usually takes `usual`, has taken `waited`, and must poll at least
    /// every `most`.
    pub(crate) fn new(usual: Duration, waited: Duration, most: Duration) -> Self {
        let early = (usual * 7 / 8).checked_sub(WAKING + waited);
        let early = early.filter(|early| *early >= STEP_LEAST);
        Self { first: early.map_or(Duration::ZERO, |early| waited + early.min(most)) }
    }

    /// Creates the schedule of a wait whose end has been expected since `from`.
    pub(crate) const fn expected_from(from: Duration) -> Self {
        Self { first: from }
    }

    /// Returns how long to sleep before the first poll, if the wait is usually long enough.
    pub(crate) fn first(&self, waited: Duration) -> Option<Duration> {
        self.first.checked_sub(waited).filter(|first| !first.is_zero())
    }

    /// Returns how long to sleep before the next poll: it is late by at most an eighth of the wait, and by at
    /// most half of the time that the end is overdue.
    pub(crate) fn step(&self, waited: Duration) -> Duration {
        let overdue = if self.first.is_zero() { waited } else { waited.saturating_sub(self.first) / 2 };
        overdue.min(waited / 8).clamp(STEP_LEAST, STEP_MOST)
    }
}

#[cfg(test)]
mod tests {
    use vgpu_pace::WaitEstimate;

    use super::*;

    const MOST: Duration = Duration::from_millis(450);
    /// Time by which a sleep exceeds its requested duration, in the tests.
    const SLACK: Duration = Duration::from_micros(60);

    /// Simulates a wait whose end comes after `end`, on a clock of its own. Returns when the end was seen.
    fn wait(usual: &WaitEstimate, end: Duration) -> Duration {
        let mut now = Duration::from_micros(1);
        let schedule = PollSchedule::new(usual.get(), now, MOST);
        if let Some(first) = schedule.first(now) {
            now += first + SLACK;
            if now >= end {
                usual.overslept(now);
                return now;
            }
        }
        while now < end {
            now += schedule.step(now) + SLACK;
        }
        usual.learn(now);
        now
    }

    #[test]
    fn a_wait_that_took_long_once_does_not_make_later_ones_long() {
        let usual = WaitEstimate::default();
        let short = Duration::from_micros(30);
        for _ in 0..10 {
            assert!(wait(&usual, short) < 5 * short);
        }
        wait(&usual, Duration::from_millis(15));
        let late = (0..100).filter(|_| wait(&usual, short) >= 5 * short).count();
        assert!(late < 8, "{late}");
    }

    #[test]
    fn a_wait_of_usual_length_is_late_by_a_tenth_at_most_and_looks_seldom() {
        for micros in [300, 1000, 8000, 40_000] {
            let end = Duration::from_micros(micros);
            let usual = WaitEstimate::default();
            for _ in 0..30 {
                wait(&usual, end);
            }
            for _ in 0..100 {
                let late = wait(&usual, end).saturating_sub(end);
                assert!(late <= end / 10 + 2 * SLACK, "{late:?} of {end:?}");
            }
            let schedule = PollSchedule::new(usual.get(), Duration::ZERO, MOST);
            let mut now = schedule.first(Duration::ZERO).unwrap();
            assert!(now < end, "it keeps clear of the end");
            let mut count = 1;
            while now < end {
                now += schedule.step(now) + SLACK;
                count += 1;
            }
            assert!(count <= 12, "{count} looks at {end:?}");
        }
    }

    #[test]
    fn no_sleep_is_longer_than_the_device_may_go_unexamined() {
        let schedule = PollSchedule::new(Duration::from_secs(3), Duration::ZERO, MOST);
        assert_eq!(schedule.first(Duration::ZERO), Some(MOST));
        assert_eq!(schedule.step(Duration::from_secs(3)), STEP_MOST);
        assert_eq!(PollSchedule::new(Duration::ZERO, STEP_LEAST, MOST).first(STEP_LEAST), None);
    }
}
