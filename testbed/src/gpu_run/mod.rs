//! `vgpu-testbed gpu-run`: tries a host's GPU through vgpu-run and vgpu-device, and measures the way there
//! against the GPU itself, by turns in one run. Made for machines that have nothing but NVIDIA's driver and
//! what `gpu-pack` carried there; any other machine can rehearse it.

mod correct;
mod limit;
mod model;
mod side;
mod speed;

use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::ValueEnum;
use serde_json::{Map, Value, json};
use vgpu_testbed::backends::Backend;
use vgpu_testbed::{guest, programs};

use model::Model;
use side::{Executor, Sides};

/// Parts of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Step {
    /// `vgpu-device check` of this host.
    Check,
    /// GGML finds the GPU.
    Discovery,
    /// GGML's operations agree with the CPU's.
    Ops,
    /// A model gives the same tokens on both sides.
    Generate,
    /// Several guests at once, doing everything.
    Soak,
    /// Launches, round trips, copies.
    Rates,
    /// Times of a model: loads, the prompt, decoding.
    Model,
}

/// Options of `gpu-run`.
#[derive(clap::Args)]
pub struct Arguments {
    /// What stands behind the device.
    #[arg(long, value_enum, default_value_t = Executor::Cuda)]
    executor: Executor,
    /// UUID of the GPU, as `nvidia-smi -L` prints it; the first, if not given.
    #[arg(long, value_name = "UUID")]
    gpu: Option<String>,
    /// Compute capability whose build of libggml-cuda.so is used; in a pack, the one that it was thinned to.
    #[arg(long, default_value = "9.0")]
    cc: String,
    /// The model: a GGUF file, or a name among the artifacts.
    #[arg(long, default_value = "smollm2")]
    model: String,
    /// Which parts, in this order; all, if not given. Each can be a command of its own, where commands have
    /// limits.
    #[arg(long, value_enum, value_delimiter = ',')]
    steps: Vec<Step>,
    /// How often each figure is taken on each side.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// Sentences of the prompt, of about 20 tokens each.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=100))]
    sentences: u16,
    /// Tokens that are decoded in a run of the model.
    #[arg(long, default_value_t = 128)]
    tokens: usize,
    /// Launches that are timed.
    #[arg(long, default_value_t = 100_000)]
    launches: usize,
    /// How much each copy copies, MiB.
    #[arg(long, default_value_t = 256)]
    mib: usize,
    /// Operations of each guest in the soak.
    #[arg(long, default_value_t = 500)]
    soak_operations: u64,
    /// Only operations that match this regular expression, instead of the short selection.
    #[arg(long, value_name = "REGEX")]
    ops_filter: Option<String>,
    /// Seconds that a program may take before it is killed and its part has failed.
    #[arg(long, default_value_t = 300)]
    limit: u64,
    /// Write the JSON here too, after each part: what a limit cuts off is not lost.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// The report so far.
struct Report<'a> {
    arguments: &'a Arguments,
    parts: Map<String, Value>,
    well: bool,
}

impl Report<'_> {
    /// Does a part and keeps what came of it. What fails does not keep others from being tried.
    fn part(&mut self, name: &str, work: impl FnOnce() -> Result<(Value, bool)>) -> Result<()> {
        let start = Instant::now();
        let (mut value, well) = match work() {
            Ok((value, well)) => (json!({ "ok": well, "result": value }), well),
            Err(error) => (json!({ "ok": false, "error": format!("{error:#}") }), false),
        };
        value["seconds"] = start.elapsed().as_secs_f64().into();
        self.well &= well;
        eprintln!("{name}: {}", if well { "ok" } else { "failed" });
        self.parts.insert(name.to_owned(), value);
        let Some(path) = &self.arguments.out else { return Ok(()) };
        std::fs::write(path, format!("{:#}\n", self.json()))
            .with_context(|| format!("write {}", path.display()))
    }

    fn json(&self) -> Value {
        json!({ "ok": self.well, "cc": self.arguments.cc, "model": self.arguments.model, "parts": self.parts })
    }
}

/// What the host itself is found to be. What it lacks for a VM is no failure here: there is none.
fn check(limit: Duration) -> Result<(Value, bool)> {
    let mut command = Command::new(programs::device()?);
    let printed = limit::run(command.args(["check", "--json"]), limit, false)?;
    Ok((serde_json::from_slice(&printed).context("read what vgpu-device check printed")?, true))
}

/// Tries, measures and prints. Exit codes: 0, and 1 if a part failed.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let backend = Backend::for_capability(&arguments.cc)?;
    let limit = Duration::from_secs(arguments.limit);
    let model = Model {
        backend,
        path: guest::model(&arguments.model)?,
        sentences: usize::from(arguments.sentences),
        tokens: arguments.tokens.max(2),
        limit,
    };
    let sides = Sides::start(arguments.executor, &arguments.cc, arguments.gpu.as_deref(), backend)?;
    let mut report = Report { arguments, parts: Map::new(), well: true };
    report.parts.insert("sides".to_owned(), sides.describe());
    let steps = match &arguments.steps[..] {
        [] => Step::value_variants(),
        some => some,
    };
    for &step in steps {
        let name = step.to_possible_value().context("name a part")?;
        report.part(name.get_name(), || match step {
            Step::Check => check(limit),
            Step::Discovery => correct::discovery(&sides, backend, limit),
            Step::Ops => correct::ops(&sides, arguments, limit),
            Step::Generate => correct::generate(&sides, &model),
            Step::Soak => correct::soak(&sides, arguments, limit),
            Step::Rates => speed::rates(&sides, arguments, limit),
            Step::Model => speed::model(&sides, &model, usize::from(arguments.rounds)),
        })?;
    }
    report.parts.insert("device".to_owned(), sides.status()?);
    println!("{:#}", report.json());
    Ok(if report.well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
