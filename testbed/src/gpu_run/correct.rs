//! What must come out right before a figure means anything: the GPU is found, GGML's operations agree with
//! the CPU's, a model gives the same tokens on both sides, and a soak leaves nothing behind.

use std::process::Command;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use vgpu_llama::event::Event;
use vgpu_testbed::backends::Backend;
use vgpu_testbed::programs;

use super::arguments::Arguments;
use super::limit::{self, Limits};
use super::model::Model;
use super::side::Sides;

/// What GGML finds on both sides. Memory is not compared: contexts of workers come out of the guest's.
pub fn discovery(sides: &Sides, backend: Backend, limits: Limits) -> Result<(Value, bool)> {
    let library = backend.folder()?.join("libggml-cuda.so");
    let mut found = Vec::new();
    for (_, side) in sides.both(0) {
        // The root: the backend's RUNPATH has an empty entry, which is the working directory.
        let mut command = side.command(&programs::standin()?)?;
        command.arg("ggml").arg(&library).current_dir("/");
        let seen: Value = serde_json::from_slice(&limit::run(&mut command, limits, true)?)?;
        found.push(json!({ "devices": seen["devices"], "ms": seen["ms"] }));
    }
    let names = |seen: &Value| -> Vec<(Value, Value)> {
        let devices = seen["devices"].as_array().map(Vec::as_slice).unwrap_or_default();
        devices.iter().map(|device| (device["name"].clone(), device["cc"].clone())).collect()
    };
    let (native, through) = (names(&found[0]), names(&found[1]));
    // The device has one GPU; the machine may have several.
    let well = through.len() == 1 && native.contains(&through[0]);
    Ok((json!({ "native": found[0], "through": found[1], "same": well }), well))
}

/// A command of this program on the device, which prints JSON.
fn own(sides: &Sides, arguments: &[&str], limits: Limits) -> Result<Value> {
    let mut command = Command::new(programs::testbed()?);
    command.args(arguments).arg("--json").env("VGPU_SYSFS", sides.sysfs());
    let printed = limit::run(&mut command, limits, false)?;
    serde_json::from_slice(&printed).with_context(|| format!("read what {} printed", arguments[0]))
}

/// GGML's operations, compared with the CPU's.
pub fn ops(sides: &Sides, arguments: &Arguments, limits: Limits) -> Result<(Value, bool)> {
    let which = match &arguments.ops_filter {
        Some(filter) => vec!["--filter", filter],
        None => vec!["--short"],
    };
    let report = own(sides, &[&["ops", "--cc", &arguments.cc], &which[..]].concat(), limits)?;
    let failed = report["failed"].as_array().map_or(0, Vec::len);
    let passed = report["passed"].as_u64().unwrap_or(0);
    let summary = json!({
        "cases": report["cases"],
        "passed": passed,
        "failed": report["failed"],
        "unsupported": report["unsupported"].as_array().map_or(0, Vec::len),
    });
    Ok((summary, failed == 0 && passed > 0))
}

/// Several guests that do everything at random and compare what comes back.
pub fn soak(sides: &Sides, arguments: &Arguments, limits: Limits) -> Result<(Value, bool)> {
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

/// A model's tokens on both sides.
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
    let same = texts[0].0 == texts[1].0;
    let well = same && texts[1].0.len() > 1;
    Ok((json!({ "same": same, "tokens": texts[1].0, "text": texts[1].1, "native_text": texts[0].1 }), well))
}
