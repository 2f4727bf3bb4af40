//! Runs several guest processes at once, which execute random operations and are stopped for a moment at
//! random points. Every byte that they read back must be right, and they must leave no context and no memory
//! on the device.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::support::{report_of, testbed};

/// Runs a short soak, and returns its report and whether it succeeded.
fn run_soak(more: &[&str]) -> (Value, bool) {
    report_of(testbed(&["soak", "--json", "--processes", "3", "--operations", "150"]).args(more))
}

fn soak(more: &[&str]) {
    let (report, well) = run_soak(more);
    assert_eq!(report["failed"], Value::Array(Vec::new()), "{report:#}");
    assert_eq!(report["wrong"], 0, "{report:#}");
    assert_eq!(report["left"], Value::Null, "{report:#}");
    assert!(well);
    let processes = report["processes"].as_array().unwrap();
    assert_eq!(processes.len(), 3);
    for process in processes {
        assert_eq!(process["operations"], 150);
    }
    // Of all together: what one process draws can be small buffers, or miss a kind.
    assert!(report["bytes_out"].as_u64().unwrap() > 100_000, "something is compared: {report:#}");
    let kinds: BTreeSet<_> =
        processes.iter().flat_map(|process| process["kinds"].as_object().unwrap().keys()).collect();
    assert!(kinds.len() >= 8, "of every kind: {report:#}");
}

/// The version 1 device passes payloads through shared windows.
#[test]
fn version_1() {
    soak(&["--protocol", "v1"]);
}

/// The version 1 device passes payloads through BAR1.
#[test]
fn version_1_without_windows() {
    soak(&["--protocol", "v1", "--ram", "1M"]);
}

/// There are more processes than pages for windows: some have one, some have none, and they compete for them.
#[test]
fn version_1_with_too_few_windows() {
    soak(&["--protocol", "v1", "--ram", "20M"]);
}

#[test]
fn version_2() {
    soak(&["--protocol", "v2"]);
}

/// The executor for real GPUs is tested on our own libcuda and a soft device, with a worker process for each
/// guest process.
#[test]
fn version_2_through_the_cuda_executor() {
    soak(&["--protocol", "v2", "--executor", "cuda-loop"]);
}

/// A device that returns other data is detected.
#[test]
fn wrong_bytes_are_counted() {
    for protocol in ["v1", "v2"] {
        let (report, well) = run_soak(&["--protocol", protocol, "--executor", "null"]);
        assert!(!well);
        assert!(report["wrong"].as_u64().unwrap() > 10_000, "{report:#}");
    }
}
