//! Percentiles of the times of many calls.

use std::time::Instant;

use serde_json::{Value, json};

/// Returns the median and the 99th percentile of times in nanoseconds, as JSON.
pub fn percentiles(mut times: Vec<u64>) -> Value {
    times.sort_unstable();
    let at = |share: usize| times.get(times.len() * share / 100).copied();
    json!({ "p50": at(50), "p99": at(99), "count": times.len() })
}

/// Returns the nanoseconds since `start`.
pub fn nanoseconds(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}
