//! `vgpu-ops`: computes GGML's operations on a device and on the CPU, and prints one line of JSON for each.
//!
//! It knows nothing of VGPU-STUB. GGML ends the process when CUDA fails; whoever starts this program starts
//! it again after the case that did.

use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Parser;
use vgpu_ggml::case::{Case, Selection};
use vgpu_ggml::cases;
use vgpu_ggml::ffi::{self, Backend, Ggml};
use vgpu_ggml::report::Outcome;
use vgpu_ggml::run::{Side, examine};

/// Compares GGML operations on a device with the CPU.
#[derive(Parser)]
#[command(version)]
struct OpsCli {
    /// The backend library to examine, such as libggml-cuda.so.
    #[arg(long, required_unless_present = "list")]
    backend: Option<PathBuf>,
    /// The backend library to compare with; by default the best CPU backend of `base`.
    #[arg(long)]
    reference: Option<PathBuf>,
    /// The directory of libggml-base and libggml, if it is not the backend's.
    #[arg(long)]
    base: Option<PathBuf>,
    /// Run only cases whose name (`OP types shape`) matches this regular expression, or all cases of one
    /// operation.
    #[arg(long)]
    filter: Option<String>,
    /// Run a selection with every operation and type but few shapes.
    #[arg(long)]
    short: bool,
    /// Print the names of the cases instead of running them.
    #[arg(long)]
    list: bool,
    /// Read the names of the cases from stdin, one per line, and run each as it arrives.
    #[arg(long, conflicts_with_all = ["filter", "short", "list"])]
    serve: bool,
    /// Seed of the random inputs.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Give the examined backend inputs of another seed, so that every case that depends on its inputs must
    /// fail.
    #[arg(long)]
    spoil: bool,
    /// Print JSON instead of a line of text for each case.
    #[arg(long)]
    json: bool,
}

/// Backends and seeds that all cases share.
struct Bench {
    ggml: &'static Ggml,
    reference: Backend,
    device: Backend,
    seed: u64,
    spoil: bool,
    json: bool,
}

impl Bench {
    fn open(arguments: &OpsCli) -> Result<Self> {
        let path = arguments.backend.as_deref().context("no backend is given")?;
        let base = arguments.base.as_deref().or(path.parent()).context("the backend has no folder")?;
        let ggml = ffi::load(base)?;
        let reference = match &arguments.reference {
            Some(path) => path.clone(),
            None => ggml.best_cpu()?,
        };
        Ok(Self {
            ggml,
            reference: Backend::load(ggml, &reference, 0)?,
            device: Backend::load(ggml, path, 0)?,
            seed: arguments.seed,
            spoil: arguments.spoil,
            json: arguments.json,
        })
    }

    /// Runs a case, prints its result, and returns whether it did not fail.
    fn run_and_print(&self, case: &Case) -> Result<bool> {
        let reference = Side { backend: &self.reference, seed: self.seed };
        let device = Side { backend: &self.device, seed: self.seed ^ u64::from(self.spoil) };
        let report = examine(self.ggml, case, &reference, &device);
        let mut out = std::io::stdout().lock();
        if self.json {
            writeln!(out, "{}", serde_json::to_string(&report)?)?;
        } else {
            let error = report.error.map_or_else(String::new, |error| format!(" {error:.2e}"));
            let why = report.why.as_deref().unwrap_or_default();
            writeln!(out, "{:?} {}{error} {why}", report.outcome, report.case)?;
        }
        out.flush()?;
        Ok(report.outcome != Outcome::Failed)
    }
}

fn list(cases: &[&Case], json: bool) -> Result<()> {
    let mut out = std::io::stdout().lock();
    for case in cases {
        if json {
            writeln!(out, "{}", serde_json::to_string(&case.listed())?)?;
        } else {
            writeln!(out, "{}", case.name())?;
        }
    }
    Ok(())
}

fn work(arguments: &OpsCli) -> Result<bool> {
    let all = cases::all();
    if arguments.serve {
        let bench = Bench::open(arguments)?;
        let mut well = true;
        for name in std::io::stdin().lock().lines() {
            let name = name?;
            let Some(case) = all.iter().find(|case| case.name() == name) else {
                bail!("there is no case {name:?}");
            };
            well &= bench.run_and_print(case)?;
        }
        return Ok(well);
    }
    let selection = Selection::new(arguments.filter.as_deref(), arguments.short, &all)?;
    let wanted: Vec<_> = all.iter().filter(|case| selection.takes(case)).collect();
    if wanted.is_empty() {
        bail!("no case matches");
    }
    if arguments.list {
        list(&wanted, arguments.json)?;
        return Ok(true);
    }
    let bench = Bench::open(arguments)?;
    let mut well = true;
    for case in wanted {
        well &= bench.run_and_print(case)?;
    }
    Ok(well)
}

fn main() -> ExitCode {
    match work(&OpsCli::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("vgpu-ops: {error:#}");
            ExitCode::FAILURE
        }
    }
}
