//! The calls that a host's administrator refuses: those of machines in quarantine, and those above a
//! machine's rate.

use std::collections::{HashMap, HashSet};
use std::time::Instant;

/// Largest number of machines whose calls are counted, which is more than a host has. Above it, machines are
/// dropped that have called so little that they may make as many calls as a new one.
const KNOWN_MOST: usize = 1024;

/// Rules by which a host's administrator refuses calls.
#[derive(Debug, Default)]
pub struct MediatorRules {
    /// Largest number of calls per second of a machine, or `None` for no limit.
    rate: Option<u32>,
    quarantined: HashSet<u32>,
    buckets: HashMap<u32, Bucket>,
}

/// Token bucket that limits a machine's rate of calls.
#[derive(Debug)]
struct Bucket {
    calls: f64,
    filled: Instant,
}

impl Bucket {
    /// Adds `rate` calls for each second that has passed, up to `rate`, and returns the number of calls that
    /// may be made now.
    fn fill(&mut self, rate: u32, now: Instant) -> f64 {
        let more = now.saturating_duration_since(self.filled).as_secs_f64() * f64::from(rate);
        self.calls = (self.calls + more).min(f64::from(rate.max(1)));
        self.filled = now;
        self.calls
    }
}

/// Reason for which the rules refuse a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turned {
    Busy,
    Quarantined,
}

impl MediatorRules {
    /// Creates the rules. `rate` is the largest number of calls per second of each machine, which may come in
    /// one burst. All calls of the machines in `quarantined` are refused.
    pub fn new(rate: Option<u32>, quarantined: impl IntoIterator<Item = u32>) -> Self {
        Self { rate, quarantined: quarantined.into_iter().collect(), buckets: HashMap::new() }
    }

    /// Decides whether a machine's call is accepted now. Quarantine takes precedence over the rate.
    pub(super) fn admit(&mut self, vm: u32, now: Instant) -> Result<(), Turned> {
        if self.quarantined.contains(&vm) {
            return Err(Turned::Quarantined);
        }
        let Some(rate) = self.rate else { return Ok(()) };
        let most = f64::from(rate.max(1));
        if self.buckets.len() >= KNOWN_MOST && !self.buckets.contains_key(&vm) {
            self.buckets.retain(|_, bucket| bucket.fill(rate, now) < most);
            // All known machines are busy, or a client invents numbers. One more machine is too many.
            if self.buckets.len() >= KNOWN_MOST {
                return Err(Turned::Busy);
            }
        }
        let bucket = self.buckets.entry(vm).or_insert(Bucket { calls: most, filled: now });
        if bucket.fill(rate, now) < 1.0 {
            return Err(Turned::Busy);
        }
        bucket.calls -= 1.0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_machine_that_calls_too_often_waits_and_others_do_not() {
        let mut rules = MediatorRules::new(Some(10), [7]);
        let start = Instant::now();
        for _ in 0..10 {
            assert_eq!(rules.admit(1, start), Ok(()));
        }
        assert_eq!(rules.admit(1, start), Err(Turned::Busy));
        assert_eq!(rules.admit(2, start), Ok(()));
        let later = start + Duration::from_millis(150);
        assert_eq!(rules.admit(1, later), Ok(()));
        assert_eq!(rules.admit(1, later), Err(Turned::Busy));
        assert_eq!(rules.admit(7, later), Err(Turned::Quarantined));
        let mut free = MediatorRules::default();
        assert!((0..100_000).all(|_| free.admit(1, start).is_ok()));
    }

    #[test]
    fn only_so_many_machines_are_kept() {
        let mut rules = MediatorRules::new(Some(2), []);
        let start = Instant::now();
        let machines = KNOWN_MOST as u32;
        assert!((0..machines).all(|vm| rules.admit(vm, start).is_ok()));
        assert_eq!(rules.admit(machines, start), Err(Turned::Busy), "one too many");
        assert_eq!(rules.admit(0, start), Ok(()), "others go on");
        // Half a second later all machines but the first may make as many calls as a new one.
        let later = start + Duration::from_millis(500);
        assert_eq!(rules.admit(machines, later), Ok(()));
        assert_eq!(rules.buckets.len(), 2);
        assert_eq!(rules.admit(0, later), Ok(()));
        assert_eq!(rules.admit(0, later), Err(Turned::Busy), "and is not forgotten");
    }
}
