//! What the programs of a VM have noticed of its device's reloads.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

/// What has become of a VM whose device was reloaded.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// Number of tokens that differ from those of a device that is not reloaded.
    pub(super) different: usize,
    /// Number of reloads, and of those that began while tokens were still to come.
    pub(super) reloads: usize,
    pub(super) streaming: usize,
    /// Number of rounds of the other programs, by what they do.
    pub(super) rounds: BTreeMap<&'static str, u64>,
    /// What programs, the VMM or the device complained of.
    pub(super) errors: Vec<String>,
    /// Times of each reload in milliseconds: as the device tells it, of the longest access to a register, and
    /// of the longest gap between two tokens.
    pub(super) pauses: Vec<f64>,
    pub(super) accesses: Vec<f64>,
    pub(super) gaps: Vec<f64>,
    /// Times in milliseconds of the allocations that were waiting when a reload came.
    pub(super) waits: Vec<f64>,
    /// The same without reloads: the longest accesses, and all gaps.
    pub(super) accesses_without: Vec<f64>,
    pub(super) gaps_without: Vec<f64>,
}

/// A span of time.
pub(super) type Interval = (Instant, Instant);

/// Returns the gaps between moments.
pub(super) fn gaps(moments: &[Instant]) -> Vec<Interval> {
    moments.windows(2).map(|pair| (pair[0], pair[1])).collect()
}

/// Returns the length of an interval in milliseconds.
pub(super) fn length((start, end): &Interval) -> f64 {
    end.duration_since(*start).as_secs_f64() * 1000.0
}

/// Returns for each of `reloads` the longest of the intervals that it meets, in milliseconds.
pub(super) fn longest_during(intervals: &[Interval], reloads: &[Interval]) -> Vec<f64> {
    let longest = |reload: &Interval| {
        let met = intervals.iter().filter(|interval| interval.0 < reload.1 && reload.0 < interval.1);
        met.map(length).max_by(f64::total_cmp)
    };
    reloads.iter().filter_map(longest).collect()
}

/// Returns the `count` longest times.
pub(super) fn longest(mut times: Vec<f64>, count: usize) -> Vec<f64> {
    times.sort_by(|one, other| other.total_cmp(one));
    times.truncate(count);
    times
}

/// Returns the number of threads of this machine that want a processor, as an average of the last minute.
/// Times depend on it more than on anything else.
pub(super) fn load_average() -> Result<f64> {
    const FILE: &str = "/proc/loadavg";
    let text = std::fs::read_to_string(FILE).with_context(|| format!("read {FILE}"))?;
    let first = text.split(' ').next().unwrap_or_default();
    first.parse().with_context(|| format!("read {FILE}: {text}"))
}

/// Returns median, 99th percentile and maximum of times, as JSON.
pub(super) fn percentiles(mut times: Vec<f64>) -> Value {
    times.sort_by(f64::total_cmp);
    // The nearest rank.
    let at = |percent: usize| times.get((times.len() * percent).div_ceil(100).checked_sub(1)?).copied();
    let rounded = |time: Option<f64>| time.map(|time| (time * 100.0).round() / 100.0);
    json!({ "count": times.len(), "p50": rounded(at(50)), "p99": rounded(at(99)), "max": rounded(at(100)) })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn percentiles_are_times_that_were_measured() {
        assert_eq!(
            percentiles((1..=200).map(f64::from).collect()),
            json!({ "count": 200, "p50": 100.0, "p99": 198.0, "max": 200.0 })
        );
        assert_eq!(percentiles(vec![3.0]), json!({ "count": 1, "p50": 3.0, "p99": 3.0, "max": 3.0 }));
        assert_eq!(percentiles(Vec::new()), json!({ "count": 0, "p50": null, "p99": null, "max": null }));
        assert_eq!(longest(vec![1.0, 3.0, 2.0], 2), [3.0, 2.0]);
    }

    #[test]
    fn a_reload_has_the_longest_gap_that_it_meets() {
        let start = Instant::now();
        let at = |milliseconds: u64| start + Duration::from_millis(milliseconds);
        let tokens = gaps(&[at(0), at(10), at(40), at(50), at(51)]);
        let reloads = [(at(1), at(2)), (at(9), at(11)), (at(39), at(60)), (at(60), at(70))];
        assert_eq!(longest_during(&tokens, &reloads), [10.0, 30.0, 30.0]);
    }
}
