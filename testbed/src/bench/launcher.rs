//! Start-up cost of the launcher and its libraries, against the same program without them.

use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use vgpu_testbed::backends::Backend;
use vgpu_testbed::bed::Bed;
use vgpu_testbed::{nothing, programs};

use super::measure::{facts, median};

/// A program that exits at once, so that only the launcher's time is measured.
const PROGRAM: &str = "/bin/true";

/// Returns the milliseconds from the start to the end of a command.
fn wall(command: &mut Command) -> Result<f64> {
    let start = Instant::now();
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status().context("start a program")?;
    let ms = start.elapsed().as_secs_f64() * 1e3;
    if !status.success() {
        bail!("{command:?}: {status}");
    }
    Ok(ms)
}

/// Returns the milliseconds from the dlopen of the backend to its device list, as the stand-in prints them.
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

/// Compares the launcher with the bare program, and with the program whose libraries are preloaded from
/// files, which isolates the loader's part.
pub fn overhead(runs: usize) -> Result<Value> {
    let bed = Bed::start("soft", &[facts("6.1")])?;
    let launcher = programs::launcher()?;
    let mut files = Vec::new();
    for soname in programs::shims()? {
        files.push(programs::shim(&soname)?.into_os_string());
    }
    let preload = files.join(":".as_ref());
    let (mut bare, mut preloaded, mut launched) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..runs {
        bare.push(wall(&mut Command::new(PROGRAM))?);
        preloaded.push(wall(Command::new(PROGRAM).env("LD_PRELOAD", &preload))?);
        launched.push(wall(Command::new(&launcher).arg(PROGRAM).env("VGPU_SYSFS", bed.sysfs()))?);
    }
    let (bare, preloaded, launched) = (median(bare), median(preloaded), median(launched));
    Ok(json!({
        "bare_ms": bare,
        "preloaded_ms": preloaded,
        "launched_ms": launched,
        "overhead_ms": launched - bare,
    }))
}

/// Measures the time from the dlopen of libggml-cuda.so to its device list, and compares it with libraries
/// that do nothing.
pub fn discovery(runs: usize, backend: Backend) -> Result<Value> {
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
