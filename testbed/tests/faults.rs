//! Every fault of the catalogue is made, and `vgpu-run check` must name it.

use std::process::Command;

use serde_json::Value;
use vgpu_testbed::programs;

#[test]
fn every_fault_is_named_and_no_other() {
    let output = Command::new(programs::testbed().unwrap()).args(["faults", "--json"]).output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    println!(
        "left out for want of rights: {}; right only when alone: {}",
        report["skipped"], report["again"]
    );
    assert!(report["faults"].as_u64().unwrap() >= 65, "{report:#}");
    assert_eq!(report["wrong"], Value::Array(Vec::new()), "{report:#}");
    assert_eq!(report["right"], report["faults"]);
    assert!(output.status.success());
}
