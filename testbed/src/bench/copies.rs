//! `vgpu-testbed bench copies`: how fast ordinary memory gets to the device and back, in pieces of a real
//! model's tensor sizes, against one core's memcpy of the same bytes. The rounds of the three alternate in
//! one process, and the medians are compared.

use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use vgpu_testbed::bed::Bed;
use vgpu_testbed::programs;

use super::measure::{facts, median};

/// Options of `bench copies`.
#[derive(clap::Args)]
pub struct Arguments {
    /// How much is copied in a round, MiB.
    #[arg(long, default_value_t = 1024)]
    mib: usize,
    /// How many rounds.
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Who serves the device.
    #[arg(long, default_value = "soft")]
    executor: String,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// The median of a list of seconds in the stand-in's answer, as GB/s.
fn rate(answer: &Value, name: &str) -> Result<f64> {
    let seconds: Vec<f64> =
        serde_json::from_value(answer[name].clone()).with_context(|| format!("no {name}"))?;
    let bytes = answer["bytes"].as_f64().context("no bytes")?;
    Ok(bytes / median(seconds) / 1e9)
}

/// Measures and prints.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let bed = Bed::start(&arguments.executor, &[facts("6.1")])?;
    let output = Command::new(programs::launcher()?)
        .arg(programs::standin()?)
        .args(["copies", "--mib", &arguments.mib.to_string(), "--rounds", &arguments.rounds.to_string()])
        .env("VGPU_SYSFS", bed.sysfs())
        .stdin(Stdio::null())
        .output()
        .context("start the stand-in")?;
    if !output.status.success() {
        bail!("the stand-in: {}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    let answer: Value = serde_json::from_slice(&output.stdout)?;
    let memcpy = rate(&answer, "memcpy_s")?;
    let (up, down) = (rate(&answer, "to_device_s")?, rate(&answer, "from_device_s")?);
    let figures = json!({
        "copies": answer["copies"],
        "memcpy_gb_s": memcpy,
        "to_device_gb_s": up,
        "to_device_ratio": up / memcpy,
        "from_device_gb_s": down,
        "from_device_ratio": down / memcpy,
    });
    if arguments.json {
        println!("{figures:#}");
    } else {
        println!(
            "{} copies, {} MiB: memcpy {memcpy:.2} GB/s; to the device {up:.2} GB/s, ratio {:.2}; from it {down:.2} GB/s, ratio {:.2}",
            answer["copies"],
            arguments.mib,
            up / memcpy,
            down / memcpy
        );
    }
    Ok(ExitCode::SUCCESS)
}
