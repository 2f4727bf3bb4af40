//! `vgpu-testbed gpu-pack`: what it packs is carried, joined and run as on a machine with a GPU and nothing
//! else. A soft device stands in for the GPU.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use vgpu_testbed::programs;

/// Runs the pack's script in an environment that knows nothing of this workspace.
fn start(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new("sh");
    command.arg(folder.join("start.sh")).args(arguments).current_dir("/").env_clear();
    // A home without a cache: what the pack lacks cannot come from there.
    command.env("PATH", "/usr/bin:/bin").env("HOME", folder.join("nobody"));
    command.output().expect("the script runs")
}

fn error(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_pack_is_split_joined_and_runs_by_itself() {
    let folder = tempfile::tempdir().expect("a folder");
    let made = folder.path().join("made");
    let output = Command::new(programs::testbed().expect("the program"))
        // NVIDIA's libraries, of which nothing runs without a GPU, are a GB.
        .args(["gpu-pack", "--cc", "6.1", "--part", "20M", "--without-nvidia", "--json", "--out"])
        .arg(&made)
        .output()
        .expect("the program runs");
    assert!(output.status.success(), "{}", error(&output));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let parts: Vec<&str> =
        report["parts"].as_array().expect("parts").iter().filter_map(|part| part["name"].as_str()).collect();
    assert!(parts.len() > 3, "{report:#}");
    for part in &parts {
        assert!(made.join(part).metadata().expect("a part").len() <= 20 << 20);
    }
    let thinned = &report["thinned"];
    let [kept, dropped] = ["kept_bytes", "dropped_bytes"].map(|key| thinned[key].as_u64().expect("bytes"));
    assert!(thinned["containers"].as_u64().is_some_and(|count| count > 100), "{thinned}");
    assert!(kept < 40 << 20 && dropped > 200 << 20, "one image of six stays: {thinned}");

    // One part arrives damaged, and is refused; one does not arrive.
    let damaged = made.join(parts[1]);
    let whole = std::fs::read(&damaged).expect("a part");
    let mut bytes = whole.clone();
    bytes[1000] ^= 1;
    std::fs::write(&damaged, bytes).expect("damage");
    let output = start(&made, &["--join-only"]);
    assert!(!output.status.success());
    assert!(error(&output).contains(parts[1]) && error(&output).contains("damaged or missing"));
    assert!(!made.join("joined").exists(), "nothing of it is unpacked");
    std::fs::remove_file(&damaged).expect("loss");
    assert!(!start(&made, &["--join-only"]).status.success());
    std::fs::write(&damaged, whole).expect("it comes again");

    let run = [
        "--executor",
        "soft",
        "--rounds",
        "1",
        "--sentences",
        "1",
        "--tokens",
        "4",
        "--launches",
        "500",
        "--mib",
        "4",
        "--soak-operations",
        "60",
        "--ops-filter",
        "ADD",
    ];
    let output = start(&made, &run);
    assert!(output.status.success(), "{}\n{}", error(&output), String::from_utf8_lossy(&output.stdout));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let parts = &report["parts"];
    assert_eq!(parts["sides"]["rehearsal"], true, "{report:#}");
    assert_eq!(parts["sides"]["libraries"], Value::Null);
    for part in ["check", "discovery", "ops", "generate", "soak", "rates", "model"] {
        assert_eq!(parts[part]["ok"], true, "{part}: {report:#}");
    }
    assert_eq!(parts["discovery"]["result"]["through"]["devices"][0]["cc"], "6.1");
    assert_eq!(parts["generate"]["result"]["tokens"].as_array().map(Vec::len), Some(4));
    let figures = [
        ("rates", "launches_per_second"),
        ("rates", "sync_rtt_us_p99"),
        ("rates", "h2d_pinned_gbps"),
        ("rates", "d2h_pageable_gbps"),
        ("model", "load_cold_s"),
        ("model", "load_warm_s"),
        ("model", "first_token_s_graphs"),
        ("model", "prompt_tokens_per_second_graphs"),
        ("model", "decode_tokens_per_second_graphs"),
        ("model", "decode_tokens_per_second_no_graphs"),
    ];
    for (part, figure) in figures {
        let row = &parts[part]["result"][figure];
        for side in ["native", "through", "ratio"] {
            assert!(row[side].as_f64().is_some_and(|value| value > 0.0), "{figure}: {row}");
        }
    }
    let device = &parts["device"]["devices"][0];
    assert_eq!(device["allocated"], 0, "{device:#}");

    // Without the GPU that is asked for, which no machine has, the report says why in a sentence; what can be
    // found out is found out all the same, and the report is on disk too.
    let out = folder.path().join("figures.json");
    let nobody = "GPU-00000000-0000-0000-0000-000000000000";
    let words = ["--gpu", nobody, "--steps", "check,rates", "--out", out.to_str().expect("a path")];
    let output = start(&made, &words);
    assert_eq!(output.status.code(), Some(1), "{}", error(&output));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let written: Value = serde_json::from_slice(&std::fs::read(&out).expect("a report")).expect("JSON");
    assert_eq!(report, written);
    let why = report["parts"]["sides"]["error"].as_str().expect("a reason");
    assert!(why.contains("libcuda") || why.contains(nobody), "{why}");
    assert_eq!(error(&output).matches(why).count(), 1, "{}", error(&output));
    assert_eq!((&report["ok"], &report["parts"]["check"]["ok"]), (&false.into(), &true.into()), "{report:#}");
    assert_eq!(report["parts"]["rates"]["ok"], false, "{report:#}");

    // A part whose time is over keeps what it has, and the next one is tried.
    let words = ["--executor", "soft", "--steps", "rates,discovery", "--step-limit", "0"];
    let output = start(&made, &words);
    assert_eq!(output.status.code(), Some(1), "{}", error(&output));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let [rates, discovery] = ["rates", "discovery"].map(|part| &report["parts"][part]);
    assert!(rates["result"]["error"].as_str().is_some_and(|why| why.contains("--step-limit")), "{rates}");
    assert!(discovery["error"].as_str().is_some_and(|why| why.contains("--step-limit")), "{discovery}");
    assert_eq!(report["parts"]["device"]["devices"][0]["allocated"], 0, "{report:#}");

    // What was joined is not joined again, and a part that fails is told.
    let output = start(&made, &["--executor", "soft", "--steps", "ops", "--ops-filter", "NO SUCH OPERATION"]);
    assert_eq!(output.status.code(), Some(1), "{}", error(&output));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["parts"]["ops"]["ok"], false, "{report:#}");
}
