//! A language model through the whole stack: stock llama.cpp, stock libggml-cuda.so, launcher, shims, device.
//! It generates what the CPU generates; a token takes an exact number of messages; and failures are reported
//! with CUDA's errors and leave a device that serves the next process.
//!
//! Run it in release mode: the soft executor is slow without optimisation.

use std::io::Write;

use serde_json::{Value, json};
use vgpu_llama::event::{Event, Job};
use vgpu_llama::ffi::Encoding;
use vgpu_serve::Facts;
use vgpu_testbed::bed::{Bed, random_facts, sessions};
use vgpu_testbed::guest::{self, LlamaProcess, LogTo, Place, Settings};
use vgpu_testbed::programs;

use crate::support::{errors, good_report_of, launcher, testbed};

const PROMPT: &str = "The capital of France is";
/// Arguments of the test bed that generate text after the prompt.
const GENERATE: [&str; 6] = ["generate", "--json", "--model", "smollm2", "--prompt", PROMPT];
/// Number of tokens after the prompt that are equal everywhere: " Paris.
///
/// The". For the next one, variants of the CPU backend differ by as much as its two most likely tokens.
const SURE: usize = 5;
/// Size in bytes of a token's logits, which are 49,152 floats.
const LOGITS: u64 = 4 * 49_152;

fn settings(tokens: usize) -> Settings {
    let mut settings = Settings::new(guest::model("smollm2").unwrap(), tokens);
    settings.log = LogTo::File;
    settings
}

fn job(prompt: &str) -> [Job; 1] {
    [Job { prompt: prompt.to_owned(), forced: None }]
}

fn facts(cc: &str, memory_mib: u64) -> Facts {
    Facts { memory_mib, ..random_facts(&[cc]) }
}

fn soft(memory_mib: u64) -> Bed {
    Bed::start("soft", &[facts("6.1", memory_mib)]).unwrap()
}

/// Returns the tokens of a job's end.
fn done(event: &Event) -> Option<Vec<i32>> {
    match event {
        Event::Done { tokens, .. } => Some(tokens.clone()),
        _ => None,
    }
}

fn is_token(event: &Event) -> Option<()> {
    matches!(event, Event::Token { .. }).then_some(())
}

fn is_paused(event: &Event) -> Option<()> {
    matches!(event, Event::Paused { .. }).then_some(())
}

/// Runs the model to its end and returns the tokens.
fn tokens(settings: &Settings, place: Place<'_>, prompt: &str) -> Vec<i32> {
    let mut guest = settings.start(place, &job(prompt)).unwrap();
    let tokens = guest.until("that it is done", done).unwrap();
    guest.finish().unwrap();
    tokens
}

/// Checks that the device holds no memory once its guests are gone. The next guest to attach frees what dead
/// ones left.
fn is_empty(bed: &Bed) {
    let status = bed.until("all sessions end", |status| sessions(status).is_empty()).unwrap();
    assert_eq!(status["devices"][0]["allocated"], 0, "{status}");
}

/// A device of version 1 generates the same tokens. A token takes as many calls as kernels and copies:
/// streams, events and synchronizes need none, and a call whose registers already have the right values is
/// one doorbell and one poll.
#[test]
fn version_1_generates_the_same() {
    let bed = Bed::start_with("soft", &[facts("6.1", 2048)], &["--protocol", "v1"]).unwrap();
    let report = good_report_of(
        testbed(&GENERATE).args(["--tokens", &SURE.to_string()]).env("VGPU_SYSFS", bed.sysfs()),
    );
    let on_cpu = tokens(&settings(SURE), Place::Cpu, PROMPT);
    assert_eq!(report["tokens"], json!(on_cpu), "{report:#}");
    let per = &report["per_token"];
    let count = |kind: &str| per["messages"][kind].as_u64().unwrap_or_else(|| panic!("{kind}: {per:#}"));
    assert_eq!(per["messages"].as_object().unwrap().len(), 3, "{per:#}");
    assert_eq!((count("LaunchKernel"), count("MemcpyHtoD"), count("MemcpyDtoH")), (576, 6, 1), "{per:#}");
    is_empty_of_owners(&bed);
}

/// Checks that a device of version 1 holds no owner once its guests are gone, each of which detaches when it
/// ends.
fn is_empty_of_owners(bed: &Bed) {
    let status = bed
        .until("all owners end", |status| sessions(status).iter().all(|owner| owner["state"] != "attached"))
        .unwrap();
    assert_eq!(status["devices"][0]["allocated"], 0, "{status}");
}

/// Runs `vgpu-testbed generate` and returns its JSON report.
fn generate(arguments: &[&str]) -> Value {
    good_report_of(testbed(&GENERATE).args(arguments))
}

/// Returns the cost of a token without joins and accesses, which depend on timing: whether a synchronize
/// still finds something to join, and whether the host sleeps and needs a doorbell.
fn cost(report: &Value) -> Value {
    let mut cost = report["per_token"].clone();
    let fields = cost.as_object_mut().unwrap_or_else(|| panic!("measured: {report}"));
    fields.remove("joins");
    fields.remove("tokens");
    fields.remove("accesses");
    cost
}

/// Returns the expected cost of a token: `launches`, six uploads of `bytes_in` bytes in total, and the
/// download of the logits.
fn expected(launches: Value, bytes_in: u64) -> Value {
    let mut messages = launches;
    messages["CopyIn"] = json!(6);
    messages["CopyOut"] = json!(1);
    json!({ "messages": messages, "waits": 1, "bytes_h2d": bytes_in, "bytes_d2h": LOGITS })
}

/// Bytes uploaded for a token with fused attention, whose mask of 256 positions has 16-bit floats.
const BYTES_FUSED: u64 = 2840;
const BYTES_PLAIN: u64 = 4880;

fn launches_fused() -> Value {
    expected(json!({ "Launch": 576 }), BYTES_FUSED)
}

fn launches_plain() -> Value {
    expected(json!({ "Launch": 606, "CopyDevice": 30 }), BYTES_PLAIN)
}

fn graph(bytes_in: u64) -> Value {
    expected(json!({ "GraphLaunch": 1 }), bytes_in)
}

/// Message counts do not depend on the executor's results, so the null executor shows them for all
/// combinations. A higher count is a regression of the shims; a lower one must be recorded here.
#[test]
fn a_token_costs_so_many_messages() {
    let null = ["--executor", "null", "--past-end", "--tokens", "10"];
    for (more, expected) in [
        (&["--cc", "6.1", "--flash-attention", "on"][..], launches_fused()),
        (&["--cc", "6.1", "--flash-attention", "off"], launches_plain()),
        (&["--cc", "7.0", "--flash-attention", "on"], graph(BYTES_FUSED)),
        (&["--cc", "7.0", "--flash-attention", "off"], graph(BYTES_PLAIN)),
        (&["--cc", "8.9", "--flash-attention", "on", "--build", "cuda13"], graph(BYTES_FUSED)),
    ] {
        let report = generate(&[&null, more].concat());
        assert_eq!(cost(&report), expected, "{more:?}");
        assert_eq!(report["offloaded_layers"], 31);
        assert_eq!(report["layers"], 31);
    }
}

/// Returns the first [`SURE`] tokens of a report.
fn sure(report: &Value) -> &[Value] {
    &report["tokens"].as_array().unwrap()[..SURE]
}

/// Checks that the device generates the CPU's tokens, and that its cost per token equals that of the null
/// executor.
fn as_on_the_cpu(more: &[&str], expected: &Value) {
    let count = ["--tokens", "7"];
    let cpu = generate(&[&count[..], &["--device", "cpu"]].concat());
    let gpu = generate(&[&count, more].concat());
    assert_eq!(sure(&gpu), sure(&cpu), "{} against {}", gpu["text"], cpu["text"]);
    assert_eq!(cpu["offloaded_layers"], 0);
    assert_eq!(gpu["offloaded_layers"], 31);
    assert_eq!(cost(&gpu), *expected);
    println!("{more:?}: {} tokens a second", gpu["tokens_per_second"]);
}

#[test]
fn the_cpus_tokens_with_fused_attention() {
    as_on_the_cpu(&["--cc", "6.1", "--flash-attention", "on"], &launches_fused());
}

#[test]
fn the_cpus_tokens_with_plain_attention() {
    as_on_the_cpu(&["--cc", "6.1", "--flash-attention", "off"], &launches_plain());
}

#[test]
fn the_cpus_tokens_with_graphs() {
    as_on_the_cpu(&["--cc", "7.0"], &graph(BYTES_FUSED));
}

#[test]
fn the_cpus_tokens_with_streams_in_any_order() {
    as_on_the_cpu(&["--cc", "6.1", "--adversarial", "7"], &launches_fused());
}

/// The executor for real GPUs generates the tokens of the soft executor behind it, at the same cost for the
/// guest.
#[test]
fn the_soft_executors_tokens_through_the_cuda_executor() {
    for cc in ["6.1", "7.0"] {
        let report = |executor| generate(&["--tokens", "7", "--cc", cc, "--executor", executor]);
        let (soft, looped) = (report("soft"), report("cuda-loop"));
        assert_eq!(looped["tokens"], soft["tokens"], "{cc}: {} against {}", looped["text"], soft["text"]);
        assert_eq!(cost(&looped), cost(&soft), "{cc}");
        assert_eq!(looped["offloaded_layers"], 31);
        println!(
            "{cc}: {} tokens a second, {} without",
            looped["tokens_per_second"], soft["tokens_per_second"]
        );
    }
}

/// The CUDA backend sums 8-bit activations before rounding, the CPU backend after. For a model in Q4_1 this
/// alone is five times the noise between variants of the CPU backend, which is about 0.003 nats.
#[test]
fn distributions_are_near_the_cpus() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(PROMPT.as_bytes()).unwrap();
    let agree = ["agree", "--json", "--model", "smollm2", "--tokens", "12", "--prompts"];
    let report = good_report_of(testbed(&agree).arg(file.path()));
    assert_eq!(report["positions"], 12);
    assert!(report["same_top"].as_f64().unwrap() >= 0.9, "{report:#}");
    assert!(report["mean_divergence"].as_f64().unwrap() < 0.03, "{report:#}");
}

/// GGML reserves 32 GiB of addresses for each context, such as for a draft model beside a model, or for an
/// embedding beside a completion. Version 1 has no reservations, and GGML works without them.
#[test]
fn contexts_of_two_models_in_one_process() {
    let folder = tempfile::tempdir().unwrap();
    let mut settings = settings(SURE);
    let second = guest::encode(settings.backend, &settings.model, Encoding::Q8_0, folder.path()).unwrap();
    let expected = [settings.model.clone(), second.clone()].map(|model| {
        let alone = Settings { model, ..settings.clone() };
        tokens(&alone, Place::Cpu, PROMPT)
    });
    settings.second = Some(second);
    for (executor, cc, options) in
        [("soft", "7.0", &[][..]), ("cuda-loop", "6.1", &[]), ("soft", "6.1", &["--protocol", "v1"])]
    {
        let bed = Bed::start_with(executor, &[facts(cc, 1024)], options).unwrap();
        let mut guest = settings.start(Place::Gpu(bed.sysfs()), &job(PROMPT)).unwrap();
        let found = [(); 2].map(|()| guest.until("that a model is done", done).unwrap());
        assert_eq!(found, expected, "{executor} {cc} {options:?}");
        guest.finish().unwrap();
    }
}

#[test]
fn two_models_at_once() {
    let bed = soft(1024);
    let settings = settings(4);
    let place = Place::Gpu(bed.sysfs());
    let mut guests: Vec<(LlamaProcess, &str)> = [PROMPT, "Once upon a time"]
        .map(|prompt| (settings.start(place, &job(prompt)).unwrap(), prompt))
        .into();
    for (guest, prompt) in &mut guests {
        let found = guest.until("that it is done", done).unwrap();
        assert_eq!(found, tokens(&settings, Place::Cpu, prompt), "{prompt}");
    }
    for (guest, _) in guests {
        guest.finish().unwrap();
    }
    is_empty(&bed);
}

#[test]
fn a_guest_killed_while_it_generates() {
    let bed = soft(1024);
    let mut settings = settings(64);
    let mut victim = settings.start(Place::Gpu(bed.sysfs()), &job(PROMPT)).unwrap();
    victim.until("a token", is_token).unwrap();
    victim.kill().unwrap();
    settings.tokens = 3;
    let found = tokens(&settings, Place::Gpu(bed.sysfs()), PROMPT);
    assert_eq!(found, tokens(&settings, Place::Cpu, PROMPT));
    is_empty(&bed);
}

#[test]
fn a_device_killed_while_it_generates() {
    let mut bed = soft(1024);
    let mut settings = settings(64);
    settings.pause_from = Some(1);
    let mut guest = settings.start(Place::Gpu(bed.sysfs()), &job(PROMPT)).unwrap();
    guest.until("that it waits", is_paused).unwrap();
    bed.kill().unwrap();
    guest.resume().unwrap();
    while let Some(event) = guest.event().unwrap() {
        assert!(!matches!(event, Event::Paused { .. }), "a token without a device: {event:?}");
    }
    let status = guest.wait().unwrap();
    assert!(!status.success());
    let log = guest.log().unwrap();
    assert!(log.contains("CUDA error: "), "{status}: {log}");
}

#[test]
fn out_of_device_memory() {
    // The weights take 92.17 MiB.
    let bed = soft(80);
    let mut guest = settings(2).start(Place::Gpu(bed.sysfs()), &job(PROMPT)).unwrap();
    assert!(guest.event().unwrap().is_none(), "nothing is generated");
    let status = guest.wait().unwrap();
    assert_eq!(status.code(), Some(1), "it is told and ends, it does not crash");
    let log = guest.log().unwrap();
    assert!(log.contains("cudaMalloc failed: out of memory"), "{log}");
    assert!(log.contains("failed to load the model"), "{log}");
    is_empty(&bed);
    // What is left serves whoever needs less.
    let standin = programs::standin().unwrap();
    let output = launcher(bed.sysfs()).arg(standin).args(["state", "working"]).output().unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    is_empty(&bed);
}
