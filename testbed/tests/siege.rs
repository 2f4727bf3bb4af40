//! Done when, item 3: hostile programs of every class beside good ones, on three buses. A short run: bytes,
//! charges and completion are judged, speed is not. `vgpu-testbed siege --minutes 10` judges all.

use serde_json::Value;

use crate::support::{report_of, testbed};

/// Runs a short siege, and returns its report and whether it held.
fn besiege(more: &[&str]) -> (Value, bool) {
    report_of(testbed(&["siege", "--json"]).args(more))
}

/// Runs two rounds on a bus, and checks that they hold and that each of `classes` classes had a turn.
fn assert_holds(bus: &str, classes: usize) {
    let (report, held) = besiege(&["--rounds", "2", "--bus", bus]);
    let found = &report["buses"][0];
    assert_eq!(found["failures"], Value::Array(Vec::new()), "{report:#}");
    assert!(held, "{report:#}");
    assert_eq!(found["rounds"], 2, "{report:#}");
    assert_eq!(found["wrong_bytes"], 0, "{report:#}");
    assert_eq!(found["charged_after"], Value::from(vec![0, 0]), "{report:#}");
    assert!(found["compared_bytes"].as_u64().unwrap() > 1 << 20, "{report:#}");
    assert!(found["sigterm_us"].as_u64().is_some(), "{report:#}");
    let attacked = found["classes"].as_object().unwrap();
    assert_eq!(attacked.len(), classes, "{report:#}");
    assert!(attacked.values().all(|class| class["begun"].as_u64() > Some(0)), "{report:#}");
}

#[test]
fn the_simulated_bus_holds() {
    assert_holds("simulated", 17);
}

#[test]
fn version_1_with_a_mediator_holds() {
    assert_holds("version-1", 19);
}

#[test]
fn a_booted_guest_holds() {
    assert_holds("guest", 17);
}
