//! Stock libggml-cuda.so finds the devices: every backend in every position, eight processes at
//! once, two devices.

use std::process::Command;

use serde_json::Value;
use vgpu_testbed::programs;

fn discover(arguments: &[&str]) -> Value {
    let output = Command::new(programs::testbed().unwrap())
        .args(["discover", "--json"])
        .args(arguments)
        .output()
        .unwrap();
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    assert_eq!(report["ok"], true, "{report:#}");
    assert!(output.status.success());
    report
}

/// Runs that found devices: those with the device stopped are left out.
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
