//! Divides the time of a run among its stages.

use std::time::{Duration, Instant};

use super::arguments::Step;

/// Time reserved for the end of a run, when the device is stopped and the report is written.
const END: Duration = Duration::from_secs(2);

/// Remaining time of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    end: Instant,
}

impl Budget {
    /// Creates a budget of `time` that starts now.
    pub(super) fn new(time: Duration) -> Self {
        Self { end: Instant::now() + time.saturating_sub(END) }
    }

    /// Returns the time of `step`, which starts now; `rest` contains the stages after it.
    pub(super) fn share(self, step: Step, rest: &[Step]) -> Duration {
        share(self.end.saturating_duration_since(Instant::now()), step, rest)
    }
}

/// Returns the part of the time `left` for `step`: its share of the usual budget, or less if later stages
/// would otherwise get less. Time that a stage leaves unused goes to later ones.
fn share(left: Duration, step: Step, rest: &[Step]) -> Duration {
    let own = step.seconds();
    let all = rest.iter().fold(own, |sum, other| sum + other.seconds());
    let part = left.mul_f64(Duration::from_secs(own).as_secs_f64() / Duration::from_secs(all).as_secs_f64());
    if step.takes_the_rest() { part } else { part.min(Duration::from_secs(own)) }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    #[test]
    fn stages_have_their_time_of_the_usual_budget_and_a_share_of_less() {
        let steps = Step::value_variants();
        assert_eq!(steps.iter().map(|step| step.seconds()).sum::<u64>(), 630);
        for (time, part) in [(630, 1.0), (315, 0.5)] {
            let mut left = Duration::from_secs(time);
            for (at, &step) in steps.iter().enumerate() {
                let share = share(left, step, &steps[at + 1..]);
                let expected = Duration::from_secs(step.seconds()).mul_f64(part);
                assert!(share.abs_diff(expected) < Duration::from_millis(1), "{step:?}: {share:?}");
                left -= share;
            }
        }
    }

    #[test]
    fn time_that_is_left_over_goes_to_the_operations_alone() {
        let left = Duration::from_secs(500);
        assert_eq!(share(left, Step::Rates, &[Step::Ops]), Duration::from_mins(1));
        assert_eq!(share(left, Step::Ops, &[]), left);
    }
}
