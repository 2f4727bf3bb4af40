//! Checks that must succeed before figures mean anything: the GPU is found, GGML's operations agree with the
//! CPU's, a model gives equal tokens on both sides, and a soak leaves nothing behind.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use vgpu_llama::event::Event;
use vgpu_testbed::backends::Backend;
use vgpu_testbed::programs;

use super::arguments::GpuRunArgs;
use super::limit::{self, Limits};
use super::model::Model;
use super::side::{Side, Sides};

/// Fraction of its time after which the operations' stage starts no further ones.
const OPS_SHARE: f64 = 0.8;

/// Runs the stand-in on a side and returns the JSON that it printed, or a description of its failure.
pub fn asked(side: Side<'_>, arguments: &[&OsStr], limits: Limits) -> Value {
    let ask = || -> Result<Value> {
        let mut command = side.command(&programs::standin()?)?;
        // The root: the backend's RUNPATH has an empty entry, which is the working directory.
        command.args(arguments).current_dir("/");
        serde_json::from_slice(&limit::run_limited(&mut command, limits, true)?)
            .context("read what it printed")
    };
    ask().unwrap_or_else(|error| json!({ "error": format!("{error:#}") }))
}

/// Checks serving, attaching, and what GGML finds on both sides. Memory sizes are not compared, because
/// workers' contexts reduce the guest's.
pub fn discovery(sides: &Sides, backend: Backend, limits: Limits) -> Result<(Value, bool)> {
    let attached = asked(sides.through(), &["facts".as_ref()], limits);
    let library = backend.folder()?.join("libggml-cuda.so");
    let [native, through] = sides.both(0).map(|(_, side)| {
        let mut seen = asked(side, &["ggml".as_ref(), library.as_os_str()], limits);
        if let Some(seen) = seen.as_object_mut() {
            // The log and the library paths differ; they are reported among the facts.
            seen.retain(|key, _| !["log", "maps"].contains(&key.as_str()));
        }
        seen
    });
    let names = |seen: &Value| -> Vec<(Value, Value)> {
        let devices = seen["devices"].as_array().map(Vec::as_slice).unwrap_or_default();
        devices.iter().map(|device| (device["name"].clone(), device["cc"].clone())).collect()
    };
    // The device has one GPU; the machine may have several.
    let same = names(&through).len() == 1 && names(&native).contains(&names(&through)[0]);
    let well = same && attached["attach"]["context_ms"].is_number();
    let result = json!({
        "ready_s": sides.ready().as_secs_f64(),
        "attached": attached,
        "native": native,
        "through": through,
        "same": same,
    });
    Ok((result, well))
}

/// Returns a test bed command on the device, which prints JSON.
fn own(sides: &Sides, arguments: &[&str], limits: Limits) -> Result<Value> {
    let mut command = Command::new(programs::testbed()?);
    command.args(arguments).arg("--json").env("VGPU_SYSFS", sides.sysfs());
    let printed = limit::run_limited(&mut command, limits, false)?;
    serde_json::from_slice(&printed).with_context(|| format!("read what {} printed", arguments[0]))
}

/// Compares GGML's operations on the device with the CPU's.
pub fn ops(sides: &Sides, arguments: &GpuRunArgs, backend: Backend, limits: Limits) -> Result<(Value, bool)> {
    let which = match &arguments.ops_filter {
        Some(filter) => vec!["--filter", filter],
        None => vec!["--short"],
    };
    // Results so far are printed when the time is over; the running case may take longer.
    let time = format!("{:.0}ms", limits.left()?.mul_f64(OPS_SHARE).as_secs_f64() * 1e3);
    let words = ["ops", "--cc", &arguments.cc, "--build", backend.name(), "--budget", &time];
    let report = own(sides, &[&words, &which[..]].concat(), limits)?;
    let failed = report["failed"].as_array().map_or(0, Vec::len);
    let passed = report["passed"].as_u64().unwrap_or(0);
    let summary = json!({
        "cases": report["cases"],
        "passed": passed,
        "left": report["left"],
        "failed": report["failed"],
        "unsupported": report["unsupported"].as_array().map_or(0, Vec::len),
    });
    Ok((summary, failed == 0 && passed > 0))
}

/// Runs several guests that execute random operations and compare the results.
pub fn soak(sides: &Sides, arguments: &GpuRunArgs, limits: Limits) -> Result<(Value, bool)> {
    let operations = arguments.soak_operations.to_string();
    let report =
        own(sides, &["soak", "--protocol", "v2", "--processes", "3", "--operations", &operations], limits)?;
    let none = |key: &str| report[key].as_array().is_some_and(Vec::is_empty);
    let well = none("failed") && report["wrong"] == 0 && report["left"].is_null();
    let summary: Vec<_> = ["seed", "operations", "bytes_in", "bytes_out", "wrong", "failed", "stops", "left"]
        .into_iter()
        .map(|key| (key.to_owned(), report[key].clone()))
        .collect();
    Ok((Value::Object(summary.into_iter().collect()), well))
}

/// Returns the number of files below a directory and of their bytes, to measure the driver's cache of
/// compiled code.
fn kept(directory: &Path) -> (usize, u64) {
    let mut sum = (0, 0);
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let Ok(about) = entry.metadata() else { continue };
        let (files, bytes) = if about.is_dir() { kept(&entry.path()) } else { (1, about.len()) };
        sum = (sum.0 + files, sum.1 + bytes);
    }
    sum
}

/// Compares a model's tokens on both sides.
pub fn generate(sides: &Sides, model: &Model) -> Result<(Value, bool)> {
    let mut texts = Vec::new();
    for (name, side) in sides.both(0) {
        let mut said = None;
        model.generate(side, model.tokens, true, |event| {
            if let Event::Done { tokens, text, .. } = event {
                said = Some((tokens.clone(), text.clone()));
            }
        })?;
        texts.push(said.with_context(|| format!("the side {name} said no text"))?);
    }
    let same = texts[0] == texts[1];
    let well = same && texts[1].0.len() > 1;
    let (files, bytes) = kept(sides.compiled());
    let result = json!({
        "same": same,
        "tokens": texts[1].0,
        "text": texts[1].1,
        "native_text": texts[0].1,
        "compiled": { "files": files, "bytes": bytes },
    });
    Ok((result, well))
}
