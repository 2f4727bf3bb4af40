//! What VMs have used, for metrics.

use std::ops::Add;
use std::time::Duration;

/// Time of one VM since it joined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Time that the VM was charged, in nanoseconds. While it is alone nothing is charged.
    pub charged_ns: u64,
    /// Time for which it had work while a slice of another VM ran, in nanoseconds.
    pub waited_ns: u64,
}

impl Add for Account {
    type Output = Self;

    fn add(self, more: Self) -> Self {
        Self {
            charged_ns: self.charged_ns.saturating_add(more.charged_ns),
            waited_ns: self.waited_ns.saturating_add(more.waited_ns),
        }
    }
}

/// Work that went on after its slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overrun {
    /// The VM, by the number of its slot.
    pub vm: usize,
    /// For how long the work went on after the slice was due to end, in nanoseconds.
    pub nanoseconds: u64,
}

/// Upper bounds of the buckets in which overruns are counted.
pub const OVERRUN_BOUNDS: [Duration; 12] = {
    const fn ms(number: u64) -> Duration {
        Duration::from_millis(number)
    }
    [ms(1), ms(2), ms(5), ms(10), ms(25), ms(50), ms(100), ms(250), ms(500), ms(1000), ms(2500), ms(10_000)]
};

/// How the work of a VM's slices went on after their ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overruns {
    /// Sum of all overruns, in nanoseconds.
    pub sum_ns: u64,
    /// Number of overruns of each bucket. A bucket has those of at most its bound that exceed the bound
    /// before it; the last has those that exceed all bounds.
    pub buckets: [u64; OVERRUN_BOUNDS.len() + 1],
}

impl Overruns {
    /// Counts an overrun.
    pub fn add(&mut self, nanoseconds: u64) {
        self.sum_ns = self.sum_ns.saturating_add(nanoseconds);
        let exceeds = |bound: &Duration| u128::from(nanoseconds) > bound.as_nanos();
        let bucket = OVERRUN_BOUNDS.iter().take_while(|bound| exceeds(bound)).count();
        self.buckets[bucket] = self.buckets[bucket].saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overrun_is_counted_in_the_bucket_that_it_fits() {
        let mut overruns = Overruns::default();
        for nanoseconds in [0, 1_000_000, 1_000_001, 10_000_000_000, 10_000_000_001, u64::MAX] {
            overruns.add(nanoseconds);
        }
        let mut expected = [0; OVERRUN_BOUNDS.len() + 1];
        (expected[0], expected[1], expected[11], expected[12]) = (2, 1, 1, 2);
        assert_eq!(overruns, Overruns { sum_ns: u64::MAX, buckets: expected });
        assert!(OVERRUN_BOUNDS.is_sorted());
    }
}
