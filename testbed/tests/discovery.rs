//! Stock libggml-cuda.so finds the devices: every backend in every position, eight processes at
//! once, two devices.

use serde_json::Value;

use crate::support::{report_of, testbed};

fn discover(arguments: &[&str]) -> Value {
    let (report, well) = report_of(testbed(&["discover", "--json"]).args(arguments));
    assert_eq!((&report["ok"], well), (&true.into(), true), "{report:#}");
    report
}

/// Returns the runs that found devices, without those whose device was stopped.
fn found(report: &Value) -> Vec<&Value> {
    let runs = report["runs"].as_array().unwrap().iter();
    runs.filter(|run| !run["devices"].as_array().unwrap().is_empty()).collect()
}

#[test]
fn one_process_one_device() {
    let report = discover(&[]);
    let runs = found(&report);
    assert_eq!(runs.len(), 6, "two backends in three positions: {report:#}");
    for run in runs {
        assert_eq!(run["devices"].as_array().unwrap().len(), 1);
        assert!(run["ms"].as_f64().unwrap() > 0.0);
    }
}

#[test]
fn eight_processes_two_devices() {
    let report = discover(&["--processes", "8", "--devices", "2"]);
    let runs = found(&report);
    assert_eq!(runs.len(), 48);
    for run in runs {
        assert_eq!(run["devices"].as_array().unwrap().len(), 2);
    }
}
