//! `vgpu-testbed gpu-pack` and `gpu-run`: what is packed is carried, unpacked and run as on a machine with a
//! GPU and nothing else. A soft device stands in for the GPU.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;
use vgpu_testbed::programs;

/// Creates a pack without compiling the backend, which would take minutes, and with the fastest compression.
fn pack(to: &Path) -> Value {
    let output = Command::new(programs::testbed().expect("the program"))
        .args(["gpu-pack", "--code", "ptx", "--level", "0", "--most", "100M", "--json", "--out"])
        .arg(to)
        .output()
        .expect("the program runs");
    assert!(output.status.success(), "{}", error(&output));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Runs the pack's script in an environment without any path to this workspace.
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

/// Returns the named parts of the report, one from each line, which is printed as soon as the part is
/// complete.
fn lines(output: &Output) -> Vec<(String, Value)> {
    let text = String::from_utf8_lossy(&output.stdout);
    let line = |line: &str| {
        let object: serde_json::Map<String, Value> = serde_json::from_str(line).expect("JSON in each line");
        object.into_iter().next().expect("a name")
    };
    text.lines().map(line).collect()
}

fn part<'a>(lines: &'a [(String, Value)], name: &str) -> &'a Value {
    &lines.iter().find(|(other, _)| other == name).unwrap_or_else(|| panic!("no {name}: {lines:#?}")).1
}

#[test]
fn a_pack_is_unpacked_and_runs_by_itself() {
    let folder = TempDir::new().expect("a folder");
    let made = folder.path().join("made");
    let report = pack(&made);
    let thinned = &report["thinned"];
    let [kept, dropped] = ["kept_bytes", "dropped_bytes"].map(|key| thinned[key].as_u64().expect("bytes"));
    assert!(thinned["containers"].as_u64().is_some_and(|count| count > 100), "{thinned}");
    assert!(kept < 70 << 20 && dropped > 250 << 20, "one image of six stays: {thinned}");

    // It arrives damaged, and is refused; it does not arrive.
    let archive = made.join("pack.tar.xz");
    let whole = std::fs::read(&archive).expect("the archive");
    assert_eq!(report["bytes"], whole.len());
    let mut bytes = whole.clone();
    bytes[1000] ^= 1;
    std::fs::write(&archive, bytes).expect("damage");
    let output = start(&made, &["--unpack-only"]);
    assert!(!output.status.success());
    assert!(error(&output).contains("pack.tar.xz") && error(&output).contains("damaged or missing"));
    assert!(!folder.path().join("made.unpacked").exists(), "nothing of it is unpacked");
    std::fs::remove_file(&archive).expect("loss");
    assert!(!start(&made, &["--unpack-only"]).status.success());
    std::fs::write(&archive, whole).expect("it comes again");

    every_stage_prints_its_result(&made);
    what_cannot_be_tried_is_told(&made);
}

fn every_stage_prints_its_result(made: &Path) {
    let out = made.join("figures.json");
    let small = "--executor cuda-loop --budget 30m --rounds 1 --sentences 1 --tokens 4 --launches 500 --mib 4 \
        --soak-operations 60 --ops-filter ADD --out";
    let mut words: Vec<&str> = small.split_whitespace().collect();
    words.push(out.to_str().expect("a path"));
    let output = start(made, &words);
    let lines = lines(&output);
    assert!(output.status.success(), "{}\n{lines:#?}", error(&output));
    let stages = ["facts", "probe", "check", "discovery", "generate", "rates", "model", "soak", "ops"];
    let names: Vec<&str> = lines.iter().map(|(name, _)| name.as_str()).collect();
    let expected = [&stages[..3], &["sides"], &stages[3..], &["device", "device_log", "end"]].concat();
    assert_eq!(names, expected, "in this order, each once");
    for stage in stages {
        assert_eq!(part(&lines, stage)["ok"], true, "{stage}: {lines:#?}");
    }
    assert_eq!(part(&lines, "end")["ok"], true);
    let written: Value = serde_json::from_slice(&std::fs::read(&out).expect("a report")).expect("JSON");
    assert_eq!(written["ok"], true);
    for (name, value) in &lines {
        assert_eq!(&written["parts"][name], value, "{name}");
    }

    let of = |stage: &str| part(&lines, stage)["result"].clone();
    assert_eq!(part(&lines, "sides")["rehearsal"], true);
    let facts = of("facts");
    assert!(facts["kernel"]["release"].is_string() && facts["limits"]["open_files"].is_number(), "{facts:#}");
    let probe = of("probe");
    assert_eq!(probe["gpu"], probe["confined"]["gpu"], "{probe:#}");
    assert_eq!(probe["attributes"]["75"], 9, "{probe:#}");
    let discovery = of("discovery");
    assert_eq!(discovery["through"]["devices"][0]["cc"], "9.0", "{discovery:#}");
    assert_eq!(discovery["attached"]["devices"][0]["attributes"]["75"], 9, "{discovery:#}");
    assert!(discovery["attached"]["attach"]["context_ms"].as_f64().is_some_and(|ms| ms > 0.0));
    assert_eq!(of("generate")["tokens"].as_array().map(Vec::len), Some(4));
    assert_eq!(of("ops")["left"], 0);
    let pinned = of("rates")["pinned_memory"].clone();
    for side in ["native", "through"] {
        assert!(pinned[side].as_str().is_some_and(|lies| lies.contains("resource2")), "{pinned}");
    }
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
    for (stage, figure) in figures {
        let row = &of(stage)[figure];
        for side in ["native", "through", "ratio"] {
            assert!(row[side].as_f64().is_some_and(|value| value > 0.0), "{figure}: {row}");
        }
    }
    let device = &part(&lines, "device")["devices"][0];
    assert_eq!(device["allocated"], 0, "{device:#}");
}

fn what_cannot_be_tried_is_told(made: &Path) {
    // Without the GPU that is asked for, which no machine has, the report says why in a sentence, and the
    // stages that need no GPU have their results.
    let nobody = "GPU-00000000-0000-0000-0000-000000000000";
    let output = start(made, &["--gpu", nobody, "--steps", "check,rates"]);
    assert_eq!(output.status.code(), Some(1), "{}", error(&output));
    let without = lines(&output);
    let why = part(&without, "sides")["error"].as_str().expect("a reason");
    assert!(why.contains("libcuda") || why.contains(nobody), "{why}");
    assert_eq!(error(&output).matches(why).count(), 1, "{}", error(&output));
    assert_eq!((&part(&without, "end")["ok"], &part(&without, "check")["ok"]), (&false.into(), &true.into()));
    assert_eq!(part(&without, "rates")["ok"], false, "{without:#?}");

    // A stage whose time is over says so, has the log of the device beside it, and the next one is tried; so
    // is one that fails.
    let words = "--executor soft --steps rates,generate,ops --step-limit 5 --mib 8192 --tokens 100000 \
        --ops-filter NONE";
    let output = start(made, &words.split_whitespace().collect::<Vec<_>>());
    assert_eq!(output.status.code(), Some(1), "{}", error(&output));
    let late = lines(&output);
    for stage in ["rates", "generate", "ops"] {
        assert_eq!(part(&late, stage)["ok"], false, "{late:#?}");
        assert!(part(&late, stage)["log"].is_array(), "{late:#?}");
    }
    let said = part(&late, "generate")["error"].as_str().expect("a reason");
    assert!(said.contains("--step-limit") || said.contains("signal: 9"), "{said}");
    assert_eq!(part(&late, "end")["ok"], false, "{late:#?}");
}
