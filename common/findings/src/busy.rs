//! Share of the processors that a process gets. A time limit for an operation that needs little time assumes
//! that the process runs: where thirty programs share two processors, a late answer does not mean that there
//! is none.

use std::num::NonZero;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// Interval at which a budget is spent.
const PAUSE: Duration = Duration::from_millis(10);
/// Longest wait for a limit, as a multiple of the limit.
const MOST: u32 = 10;
/// Longest extension of a limit on a busy machine.
const EXTRA: Duration = Duration::from_secs(10);
/// Longest interval for which a limit is charged. A process that comes back later than that did not run
/// meanwhile, whatever its share is now.
const LONGEST: Duration = Duration::from_millis(50);

/// Returns the fraction of a processor, at most 1, that each runnable program gets now.
pub fn share() -> f64 {
    // Asked for once, because the quota of the control group stands in four files, and a wait asks a hundred
    // times a second.
    static PROCESSORS: LazyLock<usize> =
        LazyLock::new(|| std::thread::available_parallelism().map_or(1, NonZero::get));
    let processors = u32::try_from(*PROCESSORS).unwrap_or(u32::MAX);
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    runnable(&load).map_or(1.0, |runnable| part(processors, runnable))
}

/// Returns the number of runnable tasks in `/proc/loadavg`: 3 in `0.20 0.18 0.12 3/211 17230`.
fn runnable(load: &str) -> Option<u32> {
    load.split(' ').nth(3)?.split_once('/')?.0.parse().ok()
}

fn part(processors: u32, runnable: u32) -> f64 {
    if runnable <= processors { 1.0 } else { f64::from(processors) / f64::from(runnable) }
}

/// A time limit that is spent in proportion to the share of a processor that the process had.
#[derive(Clone, Debug)]
pub struct Budget {
    left: Duration,
    most: Duration,
}

impl Budget {
    /// Creates a limit that lasts this long on a machine that is not busy.
    #[must_use]
    pub fn new(limit: Duration) -> Self {
        Self { left: limit, most: (limit * MOST).min(limit + EXTRA) }
    }

    /// Spends `time` during which the process had this [`share`] of a processor. Returns whether any budget
    /// is left.
    pub fn spend(&mut self, time: Duration, share: f64) -> bool {
        self.left = self.left.saturating_sub(time.min(LONGEST).mul_f64(share));
        self.most = self.most.saturating_sub(time);
        !self.left.is_zero() && !self.most.is_zero()
    }
}

/// Awaits `future`. Returns `None` if it takes longer than `limit`, which is a [`Budget`] of processor time.
pub async fn within<F: Future>(limit: Duration, future: F) -> Option<F::Output> {
    let mut future = std::pin::pin!(future);
    let (mut budget, mut last) = (Budget::new(limit), Instant::now());
    loop {
        if let Ok(output) = tokio::time::timeout(PAUSE, future.as_mut()).await {
            return Some(output);
        }
        let now = Instant::now();
        if !budget.spend(now - last, share()) {
            return None;
        }
        last = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Duration = Duration::from_millis(10);

    fn ticks(share: f64) -> u32 {
        let mut budget = Budget::new(TICK * 50);
        (1..u32::MAX).find(|_| !budget.spend(TICK, share)).unwrap()
    }

    #[test]
    fn a_busy_machine_is_waited_for_but_not_for_ever() {
        assert_eq!(ticks(1.0), 50);
        assert_eq!(ticks(0.5), 100);
        assert_eq!(ticks(0.01), 50 * MOST);
        let mut long = Budget::new(Duration::from_secs(30));
        assert!(!long.spend(Duration::from_secs(40), 0.01));
    }

    #[test]
    fn the_load_of_the_machine() {
        assert_eq!(runnable("0.20 0.18 0.12 3/211 17230\n"), Some(3));
        assert_eq!(runnable("x"), None);
        assert!(part(2, 2) > 0.99 && (part(2, 30) - 2.0 / 30.0).abs() < 1e-9);
        let share = share();
        assert!(share > 0.0 && share <= 1.0, "{share}");
    }
}
