//! `vgpu-testbed bench load`: how long code takes from `cuModuleLoadData` to the end of its first launch,
//! beside memcpy of the same bytes. The null executor shows the cost of the way to the host; what a driver
//! needs to compile the code comes on top.

use std::process::ExitCode;

use anyhow::{Context, Result};
use vgpu_testbed::bed::Bed;

use super::calls::play;
use super::measure::facts;

/// Options of `bench load`.
#[derive(clap::Args)]
pub struct LoadArgs {
    /// KiB of PTX of a module.
    #[arg(long, default_value_t = 2048)]
    kib: usize,
    /// Number of modules.
    #[arg(long, default_value_t = 50)]
    rounds: usize,
    /// Executor of the device.
    #[arg(long, default_value = "null")]
    executor: String,
    /// Run the session in a worker process.
    #[arg(long)]
    worker: bool,
    /// Print the times as JSON instead of text.
    #[arg(long)]
    json: bool,
}

/// Measures modules and prints the times.
pub fn run_load(arguments: &LoadArgs) -> Result<ExitCode> {
    let options: &[&str] = if arguments.worker { &["--worker"] } else { &[] };
    let bed = Bed::start_with(&arguments.executor, &[facts("7.0")], options)?;
    let (kib, rounds) = (arguments.kib.to_string(), arguments.rounds.to_string());
    let answer = play(&bed, &["load", "--kib", &kib, "--rounds", &rounds].map(str::to_owned))?;
    if arguments.json {
        println!("{answer:#}");
        return Ok(ExitCode::SUCCESS);
    }
    let ms = |name: &str, at: &str| -> Result<f64> {
        Ok(answer[name][at].as_f64().with_context(|| format!("no {name}"))? / 1e6)
    };
    println!(
        "{kib} KiB of PTX: loaded after {:.2} ms (p99 {:.2}), first launch ended after {:.2} ms (p99 {:.2}); memcpy {:.2} ms",
        ms("loaded_ns", "p50")?,
        ms("loaded_ns", "p99")?,
        ms("launched_ns", "p50")?,
        ms("launched_ns", "p99")?,
        ms("memcpy_ns", "p50")?,
    );
    Ok(ExitCode::SUCCESS)
}
