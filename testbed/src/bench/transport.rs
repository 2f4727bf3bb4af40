//! `vgpu-testbed bench transport`: what a round trip, a submission and a byte cost on the simulated bus, through CUDA's driver API,
//! for both versions of the contract; version 1 with an injected cost of each register access. For each figure of version 1 also the accesses
//! that it took, which are exits in a virtual machine.

use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use vgpu_testbed::bed::Bed;
use vgpu_testbed::programs;

use super::facts;

/// Options.
#[derive(clap::Args)]
pub struct Arguments {
    /// How many calls of each kind.
    #[arg(long, default_value_t = 2000)]
    calls: usize,
    /// How much is copied, MiB.
    #[arg(long, default_value_t = 64)]
    mib: usize,
    /// Who serves the device.
    #[arg(long, default_value = "null")]
    executor: String,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// A way to a device.
struct Way {
    name: &'static str,
    options: &'static [&'static str],
    /// Each call costs so much that fewer of them do.
    slow: bool,
}

const WAYS: &[Way] = &[
    Way { name: "sim v2", options: &[], slow: false },
    Way { name: "sim v1", options: &["--protocol", "v1"], slow: false },
    Way { name: "sim v1, 10 us", options: &["--protocol", "v1", "--access-cost", "10us"], slow: true },
    Way { name: "sim v1, 88 us", options: &["--protocol", "v1", "--access-cost", "88us"], slow: true },
];

/// Runs the stand-in on one way; its answer.
fn measure(arguments: &Arguments, way: &Way) -> Result<Value> {
    let bed = Bed::start_with(&arguments.executor, &[facts("6.1")], way.options)?;
    let calls = if way.slow { arguments.calls / 10 } else { arguments.calls };
    let output = Command::new(programs::launcher()?)
        .arg(programs::standin()?)
        .args(["transport", "--calls", &calls.to_string(), "--mib", &arguments.mib.to_string()])
        .env("VGPU_SYSFS", bed.sysfs())
        .stdin(Stdio::null())
        .output()
        .context("start the stand-in")?;
    if !output.status.success() {
        bail!("{}: {}: {}", way.name, output.status, String::from_utf8_lossy(&output.stderr));
    }
    let mut answer: Value = serde_json::from_slice(&output.stdout)?;
    answer["way"] = json!(way.name);
    // The null executor keeps no bytes.
    if arguments.executor != "null" && answer["same"] != true {
        bail!("{}: what came back is not what went there", way.name);
    }
    Ok(answer)
}

/// Measures and prints.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let mut answers = Vec::new();
    for way in WAYS {
        answers.push(measure(arguments, way)?);
    }
    if arguments.json {
        println!("{:#}", json!({ "executor": arguments.executor, "ways": answers }));
        return Ok(ExitCode::SUCCESS);
    }
    let micro = |value: &Value| value.as_f64().unwrap_or(f64::NAN) / 1e3;
    for answer in answers {
        println!(
            "{:15} round trip {:8.2} us (99 %: {:8.2}), submit {:8.2} us (99 %: {:8.2}), {:9.0} done/s, to device {:6.3} GB/s, from it {:6.3} GB/s",
            answer["way"].as_str().unwrap_or_default(),
            micro(&answer["round_trip_ns"]["p50"]),
            micro(&answer["round_trip_ns"]["p99"]),
            micro(&answer["submit_ns"]["p50"]),
            micro(&answer["submit_ns"]["p99"]),
            answer["submissions_per_second"].as_f64().unwrap_or(f64::NAN),
            answer["to_device_gb_s"].as_f64().unwrap_or(f64::NAN),
            answer["from_device_gb_s"].as_f64().unwrap_or(f64::NAN),
        );
    }
    Ok(ExitCode::SUCCESS)
}
