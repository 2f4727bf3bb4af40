//! The command `probe`: the recording libcuda answers as a driver did, and this project's own libcuda can be
//! asked.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Map, Value, json};
use vgpu_host_testing::bench::Bench;
use vgpu_host_testing::guest::until;
use vgpu_recording_cuda::Recording;

use crate::program::program;

/// Functions that wait for a held stream on driver 580.
pub const BLOCKING: [&str; 5] =
    ["cuModuleLoadDataEx", "cuModuleUnload", "cuMemFreeHost", "cuMemFree_v2", "cuMemHostUnregister"];

/// Returns the root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Runs `probe` with a library, and returns the report of processes that all ended by themselves.
fn probe(libcuda: &Path, prepare: impl FnOnce(&mut Command)) -> Value {
    let mut command = program();
    command.arg("probe").arg("--libcuda").arg(libcuda);
    prepare(&mut command);
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text} {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_str(&text).unwrap()
}

/// Returns the values of the keys that two objects have in common, which must be at least `least`.
fn common<'a>(one: &'a Value, other: &Value, least: usize) -> [Map<String, Value>; 2] {
    let of = |from: &'a Value, other: &Value| {
        let both = from.as_object().unwrap().iter().filter(|(key, _)| !other[key.as_str()].is_null());
        both.map(|(key, value)| (key.clone(), value.clone())).collect::<Map<_, _>>()
    };
    let keys = of(one, other).len();
    assert!(keys >= least, "{keys} keys in common: {one:#} {other:#}");
    let values = of(one, other).into_iter().map(|(key, _)| (key.clone(), other[&key].clone()));
    [of(one, other), values.collect()]
}

/// Returns how answers about a held stream differ from recorded ones.
fn differences(answers: &Value, recorded: &Value) -> Vec<String> {
    let [held, expected] = [answers, recorded].map(|from| &from["while_a_stream_waits_for_the_host"]);
    let mut pairs = Vec::new();
    if held["calls"].is_object() {
        let [given, calls] = common(&held["calls"], &expected["calls"], 19);
        pairs.push((Value::Object(given), Value::Object(calls)));
    }
    for call in ["cuModuleLoadData", "cuMemFreeHost", "cuMemFree"] {
        let key = "beside_a_call_that_blocks";
        pairs.push((held[key][call].clone(), expected[key][call].clone()));
    }
    let key = "launches_queued_before_one_blocks";
    pairs.push((held[key].clone(), expected[key].clone()));
    let wrong = pairs.into_iter().filter(|(given, expected)| given != expected);
    wrong.map(|(given, expected)| format!("{given} instead of {expected}")).collect()
}

/// The recorded answers of a driver, unconfined and confined.
#[test]
fn the_recording_libcuda_answers_as_a_driver_did() {
    let options = json!({ "blocking": BLOCKING, "queue": 1021, "system_calls": true });
    let recording = Recording::new(&options).unwrap();
    let text = std::fs::read(root().join("testbed/bench/drivers/h100-580.159.04.json")).unwrap();
    let recorded: Value = serde_json::from_slice(&text).unwrap();
    // A call that has no processor for 0.6 s is taken for one that waits, which happens on a busy machine, but
    // not each time.
    let mut tries = Vec::new();
    let report = loop {
        let report = probe(&recording.library(), |command| {
            let only = "reservations,registrations,word-order,calls-behind-a-hold,queue-depth";
            command.args(["--confined", "--only", only]);
        });
        let both = [&report, &report["confined"]];
        let wrong: Vec<_> = both.iter().flat_map(|answers| differences(answers, &recorded)).collect();
        if wrong.is_empty() && report["unanswered"] == json!([]) {
            break report;
        }
        tries.push((wrong, report["unanswered"].clone()));
        assert!(tries.len() < 5, "{tries:#?}");
    };
    for answers in [&report, &report["confined"]] {
        let reservations = answers["cuMemAddressReserve"].as_array().unwrap();
        for reservation in recorded["cuMemAddressReserve"].as_array().unwrap() {
            assert!(reservations.contains(reservation), "{reservation}: {reservations:#?}");
        }
        let registrations = ["memfd_256_mib", "file_on_tmpfs", "file_on_disk"];
        for kind in registrations.into_iter().chain(["device_pointer_is_the_address"]) {
            let [given, expected] = [answers, &recorded].map(|from| &from["cuMemHostRegister"][kind]);
            assert_eq!(given, expected, "{kind}");
        }
        assert_eq!(answers["word_order"]["write"], 0);
    }
}

/// A question whose process dies, or finds no driver, is named with its reason, and the others are asked.
#[test]
fn a_driver_that_refuses_everything_is_told() {
    let recording = Recording::new(&json!({
        "failures": [{ "call": "cuCtxCreate_v2", "nth": 1, "status": 999 }],
    }));
    let recording = recording.unwrap();
    for (library, why) in [
        (recording.library().as_os_str(), "ended with exit code 1: cuCtxCreate_v2 returned 999"),
        (OsStr::new("/nowhere/libcuda.so.1"), "ended with exit code 1: load /nowhere/libcuda.so.1: "),
    ] {
        let output =
            program().args(["probe", "--only", "facts,teardown", "--libcuda"]).arg(library).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        for (at, question) in ["facts", "teardown"].into_iter().enumerate() {
            let unanswered = &report["unanswered"][at];
            assert_eq!((&unanswered["question"], &unanswered["confined"]), (&json!(question), &json!(false)));
            assert!(unanswered["reason"].as_str().unwrap().starts_with(why), "{unanswered}");
        }
    }
}

/// When its time is over a question's process is killed and the rest is not asked, but what was answered is
/// printed.
#[test]
fn what_was_answered_in_time_is_printed() {
    let recording = Recording::new(&json!({})).unwrap();
    recording.hold_call("cuMemAddressReserve").unwrap();
    let mut command = program();
    command.args(["probe", "--only", "facts,reservations,teardown", "--limit", "9", "--libcuda"]);
    let output = command.arg(recording.library()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report["cuDriverGetVersion"].is_number(), "{report:#}");
    let unanswered = report["unanswered"].as_array().unwrap();
    let of = |row: &Value| (row["question"].clone(), row["reason"].as_str().unwrap().to_owned());
    let rows: Vec<_> = unanswered.iter().map(of).collect();
    assert_eq!(rows.len(), 2, "{rows:?}");
    assert_eq!(rows[0].0, "reservations");
    assert_eq!(rows[1], (json!("teardown"), "not asked: no time was left".to_owned()));
}

/// All questions are answered by this project's libcuda in front of a soft device, or refused by it.
#[test]
fn this_projects_libcuda_can_be_asked() {
    const LIBCUDA: &str = "libcuda.so.1";
    let options =
        xtask::shims::Options { only: vec![LIBCUDA.to_owned()], ..xtask::shims::Options::embedded(&root()) };
    let built = xtask::shims::update(&options).unwrap();
    assert!(built.failed.is_empty(), "{:?}", built.failed);
    let bench = Bench::soft();
    let report = probe(&options.out.join(LIBCUDA), |command| {
        command.args(["--confined", "--worker-connects"]).env("VGPU_SYSFS", bench.folder());
    });
    for answers in [&report, &report["confined"]] {
        assert_eq!(answers["gpu"], "VGPU-STUB test", "{report:#}");
        assert_eq!(answers["programmatic_edges"]["end_capture"], 0, "{report:#}");
        let codes = &answers["codes_after_a_fault"];
        assert_eq!([&codes["context_synchronize"], &codes["launch"]], [700, 700], "{report:#}");
        let costs = &answers["microseconds_p50_p90"];
        for beside in ["alone", "another thread asks for an event", "another thread reads memory"] {
            assert!(costs[beside]["launch, back to back"][0].as_f64() > Some(0.0), "{report:#}");
        }
        assert!(
            answers["cuCtxDestroy_ms"].is_number() && answers["process_end_ms"].is_number(),
            "{report:#}"
        );
        let ms = answers["cuInit_ms"].as_array().unwrap();
        assert!(ms[0].as_f64() < ms[1].as_f64(), "{report:#}");
    }
    // It registers no memory, so that its streams wait for no words.
    let unanswered = report["unanswered"].as_array().unwrap().iter();
    let questions: Vec<&Value> = unanswered.map(|one| &one["question"]).collect();
    let expected = ["word-order", "calls-behind-a-hold", "queue-depth"].map(|name| [name; 2]);
    assert_eq!(questions, expected.concat(), "{report:#}");
    until("the last process has ended at the device", || bench.allocated() == 0);
}
