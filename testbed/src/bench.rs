//! `vgpu-testbed bench`: figures, as medians and ratios measured in one run. Nothing here passes or fails.

mod copies;
mod measure;
mod transport;

use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use vgpu_testbed::backends::Backend;
use vgpu_testbed::bed::Bed;
use vgpu_testbed::{nothing, programs};

use measure::{facts, median};

/// Options of `bench`.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Arguments {
    /// One figure alone; without it the launcher and the way to a device list.
    #[command(subcommand)]
    what: Option<What>,
    /// How many runs of each kind; they alternate.
    #[arg(long, default_value_t = 100)]
    runs: usize,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(clap::Subcommand)]
enum What {
    /// Copies of a model's tensors to the device, against memcpy on one core.
    Copies(copies::Arguments),
    /// The way to the device: round trip, submission, bandwidth, by version and by cost of a register access.
    Transport(transport::Arguments),
}

/// Milliseconds that a command takes, start to end.
fn wall(command: &mut Command) -> Result<f64> {
    let start = Instant::now();
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status().context("start a program")?;
    let ms = start.elapsed().as_secs_f64() * 1e3;
    if !status.success() {
        bail!("{command:?}: {status}");
    }
    Ok(ms)
}

/// What the stand-in prints as milliseconds from the dlopen of the backend to its device list.
fn to_list(command: &mut Command) -> Result<f64> {
    let output = command.stdin(Stdio::null()).current_dir("/").output().context("start a program")?;
    if !output.status.success() {
        bail!("{command:?}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    let seen: Value = serde_json::from_slice(&output.stdout)?;
    if seen["devices"].as_array().is_none_or(Vec::is_empty) {
        bail!("{command:?}: no device: {seen}");
    }
    seen["ms"].as_f64().context("no ms")
}

/// The launcher against the bare program.
fn launcher(runs: usize) -> Result<Value> {
    let bed = Bed::start("soft", &[facts("6.1")])?;
    let (mut bare, mut launched) = (Vec::new(), Vec::new());
    for _ in 0..runs {
        bare.push(wall(&mut Command::new("/bin/true"))?);
        launched
            .push(wall(Command::new(programs::launcher()?).arg("/bin/true").env("VGPU_SYSFS", bed.sysfs()))?);
    }
    let (bare, launched) = (median(bare), median(launched));
    Ok(json!({ "bare_ms": bare, "launched_ms": launched, "overhead_ms": launched - bare }))
}

/// From the dlopen of libggml-cuda.so to its device list, against libraries that do nothing.
fn discovery(runs: usize, backend: Backend) -> Result<Value> {
    let cc = if backend == Backend::Cuda12 { "6.1" } else { "7.5" };
    let bed = Bed::start("soft", &[facts(cc)])?;
    let nothing = nothing::build()?;
    let path = backend.folder()?.join("libggml-cuda.so");
    let standin = programs::standin()?;
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for _ in 0..runs {
        let mut command = Command::new(&standin);
        command.arg("ggml").arg(&path).env("LD_PRELOAD", &nothing.preload);
        without.push(to_list(
            command.env("LD_LIBRARY_PATH", nothing.folder.path()).env("NOTHING_CC", cc.replace('.', "")),
        )?);
        let mut command = Command::new(programs::launcher()?);
        with.push(to_list(command.arg(&standin).arg("ggml").arg(&path).env("VGPU_SYSFS", bed.sysfs()))?);
    }
    let (without, with) = (median(without), median(with));
    Ok(json!({ "nothing_ms": without, "shims_ms": with, "ratio": with / without }))
}

/// Measures and prints.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    match &arguments.what {
        Some(What::Copies(arguments)) => return copies::run(arguments),
        Some(What::Transport(arguments)) => return transport::run(arguments),
        None => {}
    }
    let figures = json!({
        "launcher": launcher(arguments.runs)?,
        "discovery": {
            "cuda12": discovery(arguments.runs, Backend::Cuda12)?,
            "cuda13": discovery(arguments.runs, Backend::Cuda13)?,
        },
    });
    if arguments.json {
        println!("{figures:#}");
        return Ok(ExitCode::SUCCESS);
    }
    let ms = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
    let launcher = &figures["launcher"];
    println!(
        "launcher: /bin/true bare {:.2} ms, launched {:.2} ms, overhead {:.2} ms",
        ms(&launcher["bare_ms"]),
        ms(&launcher["launched_ms"]),
        ms(&launcher["overhead_ms"])
    );
    for name in ["cuda12", "cuda13"] {
        let of = &figures["discovery"][name];
        println!(
            "discovery, {name}: libraries that do nothing {:.3} ms, shims {:.3} ms, ratio {:.2}",
            ms(&of["nothing_ms"]),
            ms(&of["shims_ms"]),
            ms(&of["ratio"])
        );
    }
    Ok(ExitCode::SUCCESS)
}
