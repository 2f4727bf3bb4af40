//! Limits on the lines that a guest can make its host write to the log: a burst of lines, and then a number
//! of lines per minute. It also writes the line that states that lines are left out.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::sync::lock;

/// Number of bytes that count as one line.
const LINE_BYTES: usize = 256;
/// Number of lines that all sessions of a device may write in one burst. Each new session has a budget of its
/// own, so the sessions' budgets alone would not be a limit.
const DEVICE_LINES: u64 = 5_000;
/// Number of lines a minute of all sessions of a device together.
const DEVICE_LINES_PER_MINUTE: u64 = 600;

/// The budget of a session, of all sessions of a device, or of a device's VMM.
#[derive(Debug)]
pub struct LogBudget {
    most: u64,
    per_minute: u64,
    state: Mutex<BudgetState>,
}

#[derive(Debug)]
struct BudgetState {
    left: u64,
    /// Time at which lines were last added to the budget.
    filled: Instant,
    /// Number of lines that were left out since the last one was written.
    dropped: u64,
}

impl Default for LogBudget {
    /// Returns the default budget of a device.
    fn default() -> Self {
        Self::new(DEVICE_LINES, DEVICE_LINES_PER_MINUTE)
    }
}

impl LogBudget {
    /// Makes a budget of `most` lines at once, and of `per_minute` lines after that.
    #[must_use]
    pub fn new(most: u64, per_minute: u64) -> Self {
        let state = BudgetState { left: most, filled: Instant::now(), dropped: 0 };
        Self { most, per_minute, state: Mutex::new(state) }
    }

    /// Returns whether a line may be written, of which the guest chose `bytes`. Calls `say` with a line that
    /// states that lines are left out from here on, or were left out.
    pub fn admit(&self, bytes: usize, say: impl Fn(&str)) -> bool {
        self.admit_at(bytes, Instant::now(), say)
    }

    fn admit_at(&self, bytes: usize, now: Instant, say: impl Fn(&str)) -> bool {
        let mut state = lock(&self.state);
        state.fill(self.most, self.per_minute, now);
        let lines = (bytes.div_ceil(LINE_BYTES) as u64).max(1);
        // A line that is longer than a whole burst is written if the budget is full.
        if state.left < lines.min(self.most.max(1)) {
            state.dropped += 1;
            let first = state.dropped == 1;
            drop(state);
            if first {
                say("too many lines for the log: the rest is dropped");
            }
            return false;
        }
        state.left -= lines.min(state.left);
        let dropped = std::mem::take(&mut state.dropped);
        drop(state);
        if dropped > 0 {
            say(&format!("{dropped} lines for the log were dropped"));
        }
        true
    }
}

impl BudgetState {
    fn fill(&mut self, most: u64, per_minute: u64, now: Instant) {
        let Some(each) = Duration::from_mins(1).checked_div(u32::try_from(per_minute).unwrap_or(u32::MAX))
        else {
            return;
        };
        let passed = now.saturating_duration_since(self.filled);
        let more = passed.as_nanos() / each.as_nanos().max(1);
        if more > 0 {
            self.left = self.left.saturating_add(u64::try_from(more).unwrap_or(u64::MAX)).min(most);
            self.filled = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn what_is_too_much_is_dropped_and_said_once() {
        let budget = LogBudget::new(3, 60);
        let said = RefCell::new(Vec::new());
        let say = |text: &str| said.borrow_mut().push(text.to_owned());
        let start = Instant::now();
        let written = (0..10).filter(|_| budget.admit_at(1, start, say)).count();
        assert_eq!((written, said.borrow().len()), (3, 1));
        assert!(said.borrow()[0].contains("the rest is dropped"));
        // A minute adds 60 lines, but no more than the burst.
        let later = start + Duration::from_mins(1);
        let written = (0..10).filter(|_| budget.admit_at(1, later, say)).count();
        assert_eq!((written, said.borrow().len()), (3, 3));
        assert_eq!(said.borrow()[1], "7 lines for the log were dropped");
    }

    #[test]
    fn long_lines_count_for_several_and_none_may_be_written_without_a_limit_of_at_least_one() {
        let budget = LogBudget::new(4, 0);
        let start = Instant::now();
        assert!(budget.admit_at(3 * LINE_BYTES, start, |_| {}));
        assert!(!budget.admit_at(2 * LINE_BYTES, start, |_| {}));
        assert!(budget.admit_at(1, start, |_| {}));
        assert!(!budget.admit_at(1, start + Duration::from_hours(1), |_| {}));
        assert!(LogBudget::new(4, 0).admit_at(usize::MAX, start, |_| {}), "one long line alone");
    }
}
