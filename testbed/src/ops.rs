//! `vgpu-testbed ops`: GGML's operations on a device of the test bed, compared with the CPU backend.
//!
//! `vgpu-ops` (crate vgpu-ggml) computes, in guest processes under the launcher; here cases are handed out to
//! them, and what they say is added up. GGML ends its process when CUDA fails: then the case that ran has
//! failed, and a new process goes on after it.

mod table;
mod worker;

use std::collections::VecDeque;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use clap::builder::PossibleValue;
use serde_json::{Value, json};
use vgpu_ggml::report::{CaseReport, Listed, Outcome};
use vgpu_serve::{Engine, Facts};
use vgpu_testbed::backends::Backend;
use vgpu_testbed::bed::{Bed, random_facts};
use vgpu_testbed::programs;

use crate::place::{self, engine_options};
use worker::{OpsCommand, Worker};

/// Engines of the soft executor on which the cases are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Engines {
    /// This engine alone.
    One(Engine),
    /// The engines `jit` and `interpreter`, one after the other.
    Both,
    /// Each engine that the processor supports.
    All,
}

impl ValueEnum for Engines {
    fn value_variants<'a>() -> &'a [Self] {
        &[
            Self::One(Engine::Jit),
            Self::One(Engine::JitAvx512),
            Self::One(Engine::JitAvx2),
            Self::One(Engine::Interpreter),
            Self::Both,
            Self::All,
        ]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        match self {
            Self::One(engine) => engine.to_possible_value(),
            Self::Both => {
                let help = "All cases under `jit`, then all under `interpreter`";
                Some(PossibleValue::new("both").help(help))
            }
            Self::All => {
                let help = "All cases under each engine but `jit` that the processor runs";
                Some(PossibleValue::new("all").help(help))
            }
        }
    }
}

impl Engines {
    /// Returns the engines to run the cases with, one after the other; `None` leaves the choice to the
    /// device.
    fn runs(chosen: Option<Self>) -> Vec<Option<Engine>> {
        match chosen {
            None => vec![None],
            Some(Self::One(engine)) => vec![Some(engine)],
            Some(Self::Both) => vec![Some(Engine::Jit), Some(Engine::Interpreter)],
            Some(Self::All) => Engine::available().into_iter().map(Some).collect(),
        }
    }

    /// Returns whether the JSON has an object for each engine, even if there is only one.
    fn are_named(chosen: Option<Self>) -> bool {
        matches!(chosen, Some(Self::Both | Self::All))
    }
}

/// Options of `ops`.
#[derive(clap::Args)]
pub struct OpsArgs {
    /// Compute capability of the device.
    #[arg(long, default_value = "6.1")]
    cc: String,
    /// Executor of the device: `soft`, or `cuda-loop`, the executor for real GPUs on our own libcuda and a
    /// soft device. Not used with `VGPU_SYSFS`, which names the bus of an existing device.
    #[arg(long, default_value = "soft")]
    executor: String,
    /// Engine that runs kernels on the soft device; by default `jit` if the processor has AVX2, else
    /// `interpreter`. Not used with `VGPU_SYSFS`; `both` and `all` are refused then.
    #[arg(long, value_enum)]
    engine: Option<Engines>,
    /// The build of libggml-cuda.so; by default the first that has code for the compute capability.
    #[arg(long, value_enum)]
    build: Option<Backend>,
    /// Memory of the device in MiB.
    #[arg(long, default_value_t = 8192)]
    memory_mib: u64,
    /// Run only cases whose name (`OP types shape`) matches this regular expression, or all cases of one
    /// operation.
    #[arg(long)]
    filter: Option<String>,
    /// Run a selection with every operation and type but few shapes.
    #[arg(long)]
    short: bool,
    /// Number of concurrent guest processes.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    jobs: u16,
    /// Seed of the cases' random inputs.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Seconds after which a running case fails.
    #[arg(long, default_value_t = 600)]
    patience: u64,
    /// Start no more cases after this time, such as 90s; the remaining ones are counted as `left`.
    #[arg(long, value_name = "TIME", value_parser = vgpu_serve::parse_limit)]
    budget: Option<Duration>,
    /// Give the device other inputs than the CPU, to show that wrong results are detected.
    #[arg(long)]
    spoil: bool,
    /// Examine this backend library by itself, such as another variant of the CPU backend; no device is
    /// started.
    #[arg(long, conflicts_with_all = ["build", "cc", "engine", "executor", "memory_mib"])]
    backend: Option<PathBuf>,
    /// Print JSON: `cases`, `left`, `passed`, `failed`, `unsupported`, `worst`; with `--engine both` or `all`
    /// one such object for each engine, by its name.
    #[arg(long)]
    json: bool,
}

/// Returns the selected cases, as `vgpu-ops` lists them.
fn list(arguments: &OpsArgs) -> Result<Vec<Listed>> {
    let mut command = Command::new(programs::ops()?);
    command.args(["--list", "--json"]);
    if arguments.short {
        command.arg("--short");
    }
    if let Some(filter) = &arguments.filter {
        command.arg("--filter").arg(filter);
    }
    let output = command.output().context("start vgpu-ops")?;
    if !output.status.success() {
        bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let lines = output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| serde_json::from_slice(line).context("read what vgpu-ops lists")).collect()
}

/// Distributes the cases to `jobs` workers until `end` and returns the reports in the order of the cases.
fn examine(guest: &OpsCommand, cases: &[Listed], jobs: u16, end: Option<Instant>) -> Result<Vec<CaseReport>> {
    let open: Mutex<VecDeque<usize>> = Mutex::new((0..cases.len()).collect());
    let work = || -> Result<Vec<(usize, CaseReport)>> {
        let mut worker = Worker::new(guest);
        let mut reports = Vec::new();
        while end.is_none_or(|end| Instant::now() < end) {
            let next = open.lock().ok().and_then(|mut open| open.pop_front());
            let Some(index) = next else { break };
            let report = worker.run_case(&cases[index])?;
            if report.outcome == Outcome::Failed && std::io::stderr().is_terminal() {
                eprintln!("failed: {}: {}", report.case, report.why.as_deref().unwrap_or_default());
            }
            reports.push((index, report));
        }
        Ok(reports)
    };
    let mut reports = thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs).map(|_| scope.spawn(work)).collect();
        let mut all = Vec::new();
        for worker in workers {
            all.extend(worker.join().map_err(|_| anyhow::anyhow!("a worker's thread panicked"))??);
        }
        anyhow::Ok(all)
    })?;
    reports.sort_by_key(|(index, _)| *index);
    Ok(reports.into_iter().map(|(_, report)| report).collect())
}

/// Returns the JSON summary of one engine's reports, out of `cases` selected cases.
fn summary(cc: Option<&str>, engine: Option<Engine>, cases: usize, reports: &[CaseReport]) -> Value {
    let of = |outcome: Outcome| reports.iter().filter(move |report| report.outcome == outcome);
    json!({
        "cc": cc,
        "engine": engine.map(Engine::name),
        "cases": reports.len(),
        "left": cases - reports.len(),
        "passed": of(Outcome::Passed).count(),
        "failed": of(Outcome::Failed).collect::<Vec<_>>(),
        "unsupported": of(Outcome::Unsupported).collect::<Vec<_>>(),
        "worst": table::rows(reports),
    })
}

/// Runs the cases on a device whose kernels `engine` runs, or with the given backend alone.
fn reports(arguments: &OpsArgs, cases: &[Listed], engine: Option<Engine>) -> Result<Vec<CaseReport>> {
    // The device is stopped when this value is dropped.
    let mut bed = None;
    let (backend, sysfs) = if let Some(backend) = &arguments.backend {
        (backend.clone(), None)
    } else {
        let backend = Backend::chosen(arguments.build, &arguments.cc)?.folder()?.join("libggml-cuda.so");
        let sysfs = if let Some(folder) = place::others() {
            folder
        } else {
            let facts = Facts { memory_mib: arguments.memory_mib, ..random_facts(&[&arguments.cc]) };
            let started = Bed::start_with(&arguments.executor, &[facts], &engine_options(engine))?;
            bed.insert(started).sysfs().to_owned()
        };
        (backend, Some(sysfs))
    };
    let patience = Duration::from_secs(arguments.patience);
    let guest = OpsCommand { backend, sysfs, seed: arguments.seed, spoil: arguments.spoil, patience };
    examine(&guest, cases, arguments.jobs, arguments.budget.map(|budget| Instant::now() + budget))
}

/// Starts a device, runs the cases and prints the reports, for each engine in turn.
pub fn run_ops(arguments: &OpsArgs) -> Result<ExitCode> {
    let cases = list(arguments)?;
    let runs = Engines::runs(arguments.engine);
    let named = Engines::are_named(arguments.engine);
    if named && place::others().is_some() {
        bail!("--engine both and all start a device for each engine: they cannot be used with VGPU_SYSFS");
    }
    let cc = arguments.backend.is_none().then_some(arguments.cc.as_str());
    let (mut well, mut objects) = (true, serde_json::Map::new());
    for engine in runs {
        let reports = reports(arguments, &cases, engine)?;
        well &= reports.iter().all(|report| report.outcome != Outcome::Failed);
        let name = engine.map_or("device", Engine::name);
        if arguments.json {
            objects.insert(name.to_owned(), summary(cc, engine, cases.len(), &reports));
        } else {
            if named {
                println!("Engine: {name}");
            }
            table::print(&reports);
            if reports.len() < cases.len() {
                println!("{} cases were not started: the time was over.", cases.len() - reports.len());
            }
        }
    }
    if arguments.json {
        let alone = objects.values().next().filter(|_| !named).cloned();
        println!("{:#}", alone.unwrap_or(Value::Object(objects)));
    }
    Ok(if well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
