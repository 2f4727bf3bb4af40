//! The suite of `vgpu-conformance`, on soft devices that do work in its order, and in orders drawn at random.

use std::sync::Arc;

use vgpu_conformance::{Outcome, all};
use vgpu_device::{DeviceConfig, GpuConfig};
use vgpu_executor_soft::Soft;

use crate::host::{Host, is_guest, soft};

/// Names the case that a guest runs.
const CASE: &str = "CASE";

/// Runs each case against devices of its own. Those of `not_applicable` need what the devices lack.
fn conforms(name: &str, devices: impl Fn() -> Vec<DeviceConfig>, not_applicable: &[&str]) {
    if is_guest(name) {
        let case = vgpu_conformance::find(&std::env::var(CASE).unwrap()).unwrap();
        return (case.run)();
    }
    let (mut failed, mut skipped) = (Vec::new(), Vec::new());
    for case in all() {
        let host = Host::serve(devices());
        match vgpu_conformance::run(&mut host.guest(name, &[(CASE, case.name)])) {
            Outcome::Passed => host.assert_nothing_left(),
            Outcome::NotApplicable(_) => skipped.push(case.name),
            Outcome::Failed(text) => failed.push(format!("{}: {text}", case.name)),
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    assert_eq!(skipped, not_applicable);
}

/// Returns devices whose executors draw the order of independent work at random.
fn adversarial(count: u64) -> Vec<DeviceConfig> {
    let device = |index: u64| {
        let mut gpu = GpuConfig::new("Test GPU").unwrap();
        gpu.memory_bytes = 256 << 20;
        gpu.compute_capability = (9, 0);
        let executor = Soft::adversarial(&gpu, index + 1).unwrap();
        DeviceConfig::new(format!("0000:00:{:02x}.0", 5 + index).parse().unwrap(), Arc::new(executor))
    };
    (0..count).map(device).collect()
}

#[test]
fn on_a_device() {
    let needs_devices = [
        "devices::captures_refuse_other_devices_by_their_code",
        "devices::memory_of_no_device_is_refused",
        "devices::copies::long_copies_between_devices_arrive_whole",
        "devices::order::the_legacy_stream_orders_copies_with_both_devices",
    ];
    let device = || vec![soft("0000:00:05.0", |gpu| gpu.compute_capability = (9, 0))];
    conforms("conformance::on_a_device", device, &needs_devices);
}

#[test]
fn on_two_devices() {
    conforms("conformance::on_two_devices", || adversarial(2), &[]);
}

#[test]
fn on_three_devices() {
    conforms("conformance::on_three_devices", || adversarial(3), &[]);
}
