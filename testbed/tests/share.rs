//! Several VMs on one GPU, with processes of the host that fail.

use std::process::Command;

use serde_json::Value;
use vgpu_testbed::programs;

/// Returns the figures of a round with the node process.
fn share(options: &[&str]) -> Value {
    let mut command = Command::new(programs::testbed().unwrap());
    command.args(["share", "--vms", "2", "--json"]).args(options);
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    report["with_node"].clone()
}

fn launches(figures: &Value, vm: usize) -> f64 {
    figures["vms"][vm]["launches_per_second"].as_f64().unwrap()
}

/// Rounds of which one has to be right: other tests may take all processors for seconds in any of them.
const ROUNDS: usize = 5;

/// Runs rounds until one is right.
#[track_caller]
fn right_once(mut round: impl FnMut() -> (Value, bool)) {
    let mut wrong = Vec::new();
    while wrong.len() < ROUNDS {
        let (figures, right) = round();
        if right {
            return;
        }
        wrong.push(figures);
    }
    panic!("{wrong:#?}");
}

/// Kernels of 0.3 ms and of 1.6 ms, of which a message of each process is more than a slice. Other tests run
/// meanwhile, which five processes feel more than one, so that there is no bound for those. `vgpu-testbed
/// share` measures.
#[test]
fn a_vm_with_five_processes_gets_no_more_than_its_weight() {
    for block in ["0.04ms", "0.2ms"] {
        right_once(|| {
            let figures = share(&["--processes", "1,5", "--seconds", "3", "--block-time", block]);
            let right = figures["shares"][0].as_f64().unwrap() > 0.4;
            (figures, right)
        });
    }
}

/// Returns the part of a VM's launches that was complete in the last third of the time, after the fault.
fn late(figures: &Value, vm: usize) -> f64 {
    figures["vms"][vm]["last_third"].as_f64().unwrap()
}

#[test]
fn guests_go_on_when_the_node_process_is_killed_or_stopped() {
    for fault in ["node-kill", "node-stop"] {
        right_once(|| {
            let figures = share(&["--fault", fault, "--seconds", "3"]);
            let right = (0..2).all(|vm| launches(&figures, vm) > 0.0 && late(&figures, vm) > 0.1);
            (figures, right)
        });
    }
}

#[test]
fn a_device_that_is_killed_or_stopped_costs_its_own_vm_only() {
    for fault in ["device-kill", "device-stop"] {
        right_once(|| {
            let figures = share(&["--fault", fault, "--seconds", "3"]);
            let right = launches(&figures, 1) > 0.0 && late(&figures, 1) > 0.2;
            (figures, right)
        });
    }
}

#[test]
fn an_endless_kernel_or_a_held_stream_costs_its_own_vm_only() {
    let alone = || launches(&share(&["--loads", "none,busy", "--seconds", "2"]), 1);
    for loads in ["endless,busy", "held,busy"] {
        right_once(|| {
            // Before and after: the other tests' load may change in between.
            let before = alone();
            let figures = share(&["--loads", loads, "--seconds", "3"]);
            let right = launches(&figures, 1) > 0.1 * before.min(alone());
            (figures, right)
        });
    }
}
