//! The figures of a round, and their medians.

use serde_json::{Value, json};

/// What one VM got in a round.
#[derive(Clone, Debug, Default)]
pub(super) struct VmFigures {
    /// Launches of all its processes that were complete, in a second.
    pub(super) launches: f64,
    /// Part of the launches of busy processes that was complete in the last third of the time: a third if
    /// nothing changes meanwhile.
    pub(super) last_third: f64,
    /// Part of the launches that were due at set times which was complete.
    pub(super) served: Option<f64>,
    /// Median and 99th percentile of the time of a token in milliseconds, if it decodes any.
    pub(super) token_ms: Option<(f64, f64)>,
}

/// What all VMs got in a round.
#[derive(Clone, Debug)]
pub(super) struct Round {
    pub(super) vms: Vec<VmFigures>,
}

impl Round {
    fn sum(&self) -> f64 {
        self.vms.iter().map(|vm| vm.launches).sum()
    }

    fn shares(&self) -> Vec<f64> {
        let sum = self.sum();
        self.vms.iter().map(|vm| if sum > 0.0 { vm.launches / sum } else { 0.0 }).collect()
    }

    /// Returns Jain's index of the launches: 1 if all got the same, 1/n if one got all.
    fn jain(&self) -> f64 {
        let squares: f64 = self.vms.iter().map(|vm| vm.launches * vm.launches).sum();
        let count = u32::try_from(self.vms.len()).map_or(1.0, f64::from);
        if squares > 0.0 { self.sum() * self.sum() / (count * squares) } else { 1.0 }
    }

    /// Returns all figures as JSON.
    pub(super) fn json(&self) -> Value {
        let vms: Vec<Value> = self
            .vms
            .iter()
            .map(|vm| {
                let token = vm.token_ms.map(|(median, p99)| json!({ "p50": median, "p99": p99 }));
                json!({
                    "launches_per_second": vm.launches,
                    "last_third": vm.last_third,
                    "served": vm.served,
                    "token_ms": token,
                })
            })
            .collect();
        json!({ "shares": self.shares(), "sum": self.sum(), "jain": self.jain(), "vms": vms })
    }
}

/// Returns the median of each figure.
pub(super) fn median<'a>(rounds: impl Iterator<Item = &'a Round>) -> Value {
    let all: Vec<Value> = rounds.map(Round::json).collect();
    all.first().map_or(Value::Null, |first| merge(first, &all.iter().collect::<Vec<_>>()))
}

/// Returns a value of the form of `like`, with the median of each number.
fn merge(like: &Value, all: &[&Value]) -> Value {
    match like {
        Value::Object(fields) => fields
            .iter()
            .map(|(key, field)| {
                let each: Vec<&Value> = all.iter().filter_map(|value| value.get(key)).collect();
                (key.clone(), merge(field, &each))
            })
            .collect(),
        Value::Array(items) => (0..items.len())
            .map(|index| {
                let each: Vec<&Value> = all.iter().filter_map(|value| value.get(index)).collect();
                merge(&items[index], &each)
            })
            .collect(),
        Value::Number(_) => {
            let mut numbers: Vec<f64> = all.iter().filter_map(|value| value.as_f64()).collect();
            numbers.sort_by(f64::total_cmp);
            json!(numbers.get(numbers.len() / 2))
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(launches: &[f64]) -> Round {
        let vm = |&launches: &f64| VmFigures { launches, ..VmFigures::default() };
        Round { vms: launches.iter().map(vm).collect() }
    }

    #[test]
    fn one_of_two_that_gets_all_halves_the_index() {
        assert!((round(&[5.0, 5.0]).jain() - 1.0).abs() < 1e-9);
        assert!((round(&[5.0, 0.0]).jain() - 0.5).abs() < 1e-9);
        assert!((round(&[1.0, 3.0]).shares()[1] - 0.75).abs() < 1e-9);
    }

    #[test]
    fn a_median_is_that_of_each_figure() {
        let rounds = [round(&[1.0, 9.0]), round(&[2.0, 2.0]), round(&[3.0, 1.0])];
        let median = median(rounds.iter());
        assert_eq!(median["vms"][0]["launches_per_second"], 2.0);
        assert_eq!(median["vms"][1]["launches_per_second"], 2.0);
        assert_eq!(median["vms"][0]["token_ms"], Value::Null);
    }
}
