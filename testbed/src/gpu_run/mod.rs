//! `vgpu-testbed gpu-run`: tries a host's GPU through vgpu-run and vgpu-device, and measures the way there
//! against the GPU itself, by turns in one run. Made for machines that have nothing but NVIDIA's driver and
//! what `gpu-pack` carried there; any other machine can rehearse it.
//!
//! ```text
//!  budget ─► a stage's limits ─► facts │ correct, speed ─► side ─► process: vgpu-device
//!                                      │                     └───► programs, on either side
//!                                      └─► report: a line on stdout, and --out, before the next stage
//! ```

mod arguments;
mod budget;
mod correct;
mod facts;
mod limit;
mod model;
mod process;
mod report;
mod side;
mod speed;

use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use clap::ValueEnum;
use serde_json::{Value, json};
use tempfile::TempDir;
use vgpu_testbed::backends::Backend;
use vgpu_testbed::{guest, programs, random_model};

use arguments::Step;
use budget::Budget;
use limit::Limits;
use model::Model;
use report::StageReport;
use side::{Executor, Side, SidePlan, Sides};

pub use arguments::GpuRunArgs;

/// Name of the generated random model.
const RANDOM: &str = "random";

/// Time that `vgpu-device probe` needs to print its report when its own limit is over.
const PROBE_END: Duration = Duration::from_secs(2);

/// State of the device and both sides, which the first stage that needs them starts.
enum Bench {
    /// No stage has needed the sides yet.
    Planned,
    /// The sides are running.
    Running(Box<Sides>),
    /// The device could not be started; the report contains the reason.
    Nothing,
}

/// Checks the host with `vgpu-device check`. Missing prerequisites of a VM are no failure, because no VM is
/// used.
fn check(limits: Limits) -> Result<(Value, bool)> {
    let mut command = Command::new(programs::device()?);
    let printed = limit::run_limited(command.args(["check", "--json"]), limits, false)?;
    Ok((serde_json::from_slice(&printed).context("read what vgpu-device check printed")?, true))
}

/// Asks the driver what the executor relies on, also as a worker would. A rehearsal asks our own libcuda in
/// front of a soft device of its own.
fn probe(plan: &SidePlan, limits: Limits) -> Result<(Value, bool)> {
    let mut command = Command::new(programs::device()?);
    command.args(["probe", "--confined"]);
    // It must print what it has before it is killed.
    let limit = limits.left()?.saturating_sub(PROBE_END).as_secs().max(1);
    command.args(["--limit", &limit.to_string()]);
    let behind = plan.stand_in()?;
    match &behind {
        Some(behind) => {
            command.args(["--worker-connects", "--libcuda"]).arg(programs::shim("libcuda.so.1")?);
            command.env("VGPU_SYSFS", behind.bed.sysfs());
        }
        None => programs::prepend_libraries(&mut command, plan.libraries.iter().map(PathBuf::as_path)),
    }
    let printed = limit::run_limited(&mut command, limits, false)?;
    let answers: Value = serde_json::from_slice(&printed).context("read what vgpu-device probe printed")?;
    // The reasons for missing answers are data as well, but not if nobody answered.
    let well = answers["cuDriverGetVersion"].is_number();
    Ok((answers, well))
}

/// Describes the machine, and what its driver reports to a program without vgpu-run.
fn describe(executor: Executor, libraries: &[PathBuf], limits: Limits) -> (Value, bool) {
    let mut facts = facts::machine(limits);
    let driver = (executor == Executor::Cuda)
        .then(|| correct::asked(Side::Native(libraries), &["facts".as_ref()], limits));
    let well = driver.as_ref().is_none_or(|driver| driver["error"].is_null());
    facts["driver"] = driver.into();
    (facts, well)
}

/// State that the stages share.
struct Stages<'a> {
    arguments: &'a GpuRunArgs,
    backend: Backend,
    model: PathBuf,
    plan: SidePlan,
    bench: Bench,
}

impl Stages<'_> {
    /// Returns the sides. They are started on first use, and again if the device process has ended.
    fn sides(&mut self, limits: Limits, report: &mut StageReport<'_>) -> Result<&Sides> {
        if let Bench::Planned = self.bench {
            let started = limits.left().and_then(|limit| Sides::start(&self.plan, limit));
            self.bench = match started {
                Ok(sides) => {
                    report.add_part("sides", sides.describe())?;
                    Bench::Running(Box::new(sides))
                }
                Err(error) => {
                    eprintln!("gpu-run: {error:#}");
                    report.fail("sides", json!({ "ok": false, "error": format!("{error:#}") }))?;
                    Bench::Nothing
                }
            };
        }
        let Bench::Running(sides) = &mut self.bench else {
            return Err(anyhow!("there is no device to try it on"));
        };
        if let Some(how) = sides.revive(limits.left()?)? {
            eprintln!("gpu-run: the device process was started again: {how}");
            report.fail("restart", json!({ "ok": false, "error": how }))?;
        }
        Ok(sides)
    }

    fn model(&self, limits: Limits) -> Model {
        Model {
            backend: self.backend,
            path: self.model.clone(),
            sentences: usize::from(self.arguments.sentences),
            tokens: self.arguments.tokens.max(2),
            limits,
        }
    }

    /// Runs a stage and reports its result.
    fn stage(&mut self, step: Step, limits: Limits, report: &mut StageReport<'_>) -> Result<(Value, bool)> {
        let arguments = self.arguments;
        let (backend, model) = (self.backend, self.model(limits));
        match step {
            Step::Facts => Ok(describe(arguments.executor, &self.plan.libraries, limits)),
            Step::Probe => probe(&self.plan, limits),
            Step::Check => check(limits),
            Step::Discovery => correct::discovery(self.sides(limits, report)?, backend, limits),
            Step::Generate => correct::generate(self.sides(limits, report)?, &model),
            Step::Rates => Ok(speed::rates(self.sides(limits, report)?, arguments, limits)),
            Step::Model => {
                Ok(speed::model(self.sides(limits, report)?, &model, usize::from(arguments.rounds)))
            }
            Step::Soak => correct::soak(self.sides(limits, report)?, arguments, limits),
            Step::Ops => correct::ops(self.sides(limits, report)?, arguments, backend, limits),
        }
    }

    /// Returns the number of bytes that the device has logged.
    fn logged(&self) -> usize {
        if let Bench::Running(sides) = &self.bench { sides.logged() } else { 0 }
    }

    /// Returns the lines that the device and its workers have logged after the first `from` bytes.
    fn log(&self, from: usize) -> Vec<String> {
        if let Bench::Running(sides) = &self.bench { sides.log(from) } else { Vec::new() }
    }
}

/// Returns the directories of NVIDIA's libraries: those given or among the artifacts, and those of the
/// machine's Python.
fn libraries(arguments: &GpuRunArgs, backend: Backend) -> Result<Vec<PathBuf>> {
    let given = match &arguments.libraries {
        Some(folder) => Some(folder.canonicalize().with_context(|| format!("find {}", folder.display()))?),
        None => backend.nvidia_if_there()?,
    };
    let time = Duration::from_secs(10);
    let of_python = match arguments.executor {
        Executor::Cuda => facts::python_libraries(Limits::new(time, time)),
        Executor::CudaLoop | Executor::Soft => None,
    };
    Ok(given.into_iter().chain(of_python).collect())
}

/// Runs all stages and prints the results. The exit code is 1 if a stage failed, else 0.
///
/// Each stage has its own time, and its results are written before the next one starts. Without a device only
/// [`Step::Facts`], [`Step::Probe`] and [`Step::Check`] run; the report gives the reason for the others.
pub fn run_gpu_run(arguments: &GpuRunArgs) -> Result<ExitCode> {
    let budget = Budget::new(arguments.budget);
    let backend = Backend::chosen(arguments.build, &arguments.cc)?;
    let scratch = TempDir::with_prefix("vgpu-gpu-run-").context("make a temporary directory")?;
    let libraries = libraries(arguments, backend)?;
    let compiled = arguments.compiled.clone().unwrap_or_else(|| scratch.path().join("compiled"));
    let plan = SidePlan {
        executor: arguments.executor,
        cc: arguments.cc.clone(),
        gpu: arguments.gpu.clone(),
        libraries,
        compiled,
    };
    let model = if arguments.model == RANDOM {
        // The model must be on a disk, from which it is loaded cold.
        let path = scratch.path().join("random.gguf");
        random_model::write(&path, arguments.seed)?;
        path
    } else {
        guest::model(&arguments.model)?
    };
    let mut run = Stages { arguments, backend, model, plan, bench: Bench::Planned };
    let mut report = StageReport::new(arguments);
    let steps = match &arguments.steps[..] {
        [] => Step::value_variants(),
        some => some,
    };
    for (at, &step) in steps.iter().enumerate() {
        let share = budget.share(step, &steps[at + 1..]);
        let stage = arguments.step_limit.map_or(share, |most| share.min(Duration::from_secs(most)));
        let limits = Limits::new(Duration::from_secs(arguments.limit), stage);
        let name = step.to_possible_value().context("name a stage")?;
        let (begin, logged) = (Instant::now(), run.logged());
        let done = run.stage(step, limits, &mut report);
        report.finish_stage(name.get_name(), begin, done, || run.log(logged))?;
    }
    if let Bench::Running(sides) = &run.bench {
        let status = sides.status().unwrap_or_else(|error| json!({ "error": format!("{error:#}") }));
        report.add_part("device", status)?;
        report.add_part("device_log", sides.log(0).into())?;
    }
    report.finish()
}
