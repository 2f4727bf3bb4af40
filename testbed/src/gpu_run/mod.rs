//! `vgpu-testbed gpu-run`: tries a host's GPU through vgpu-run and vgpu-device, and measures the way there
//! against the GPU itself, by turns in one run. Made for machines that have nothing but NVIDIA's driver and
//! what `gpu-pack` carried there; any other machine can rehearse it.

mod arguments;
mod correct;
mod limit;
mod model;
mod side;
mod speed;

use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use clap::ValueEnum;
use serde_json::{Map, Value, json};
use vgpu_testbed::backends::Backend;
use vgpu_testbed::{guest, programs};

use arguments::Step;
use limit::Limits;
use model::Model;
use side::Sides;

pub use arguments::Arguments;

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
        self.write()
    }

    /// Writes what there is so far.
    fn write(&self) -> Result<()> {
        let Some(path) = &self.arguments.out else { return Ok(()) };
        std::fs::write(path, format!("{:#}\n", self.json()))
            .with_context(|| format!("write {}", path.display()))
    }

    fn json(&self) -> Value {
        json!({ "ok": self.well, "cc": self.arguments.cc, "model": self.arguments.model, "parts": self.parts })
    }
}

/// What the host itself is found to be. What it lacks for a VM is no failure here: there is none.
fn check(limits: Limits) -> Result<(Value, bool)> {
    let mut command = Command::new(programs::device()?);
    let printed = limit::run(command.args(["check", "--json"]), limits, false)?;
    Ok((serde_json::from_slice(&printed).context("read what vgpu-device check printed")?, true))
}

/// Tries, measures and prints. Exit codes: 0, and 1 if a part failed.
///
/// Each part has its own time, and what it found is written before the next one starts. Without a device only
/// [`Step::Check`] has something to say; the report says of the others why not.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let backend = Backend::for_capability(&arguments.cc)?;
    let path = guest::model(&arguments.model)?;
    let limits =
        || Limits::new(Duration::from_secs(arguments.limit), Duration::from_secs(arguments.step_limit));
    let mut report = Report { arguments, parts: Map::new(), well: true };
    let sides = Sides::start(arguments.executor, &arguments.cc, arguments.gpu.as_deref(), backend);
    let described = match &sides {
        Ok(sides) => sides.describe(),
        Err(error) => {
            report.well = false;
            eprintln!("gpu-run: {error:#}");
            json!({ "ok": false, "error": format!("{error:#}") })
        }
    };
    report.parts.insert("sides".to_owned(), described);
    let steps = match &arguments.steps[..] {
        [] => Step::value_variants(),
        some => some,
    };
    for &step in steps {
        let name = step.to_possible_value().context("name a part")?;
        let (limits, sides) =
            (limits(), sides.as_ref().map_err(|_| anyhow!("there is no device to try it on")));
        let model = Model {
            backend,
            path: path.clone(),
            sentences: usize::from(arguments.sentences),
            tokens: arguments.tokens.max(2),
            limits,
        };
        report.part(name.get_name(), || match step {
            Step::Check => check(limits),
            Step::Discovery => correct::discovery(sides?, backend, limits),
            Step::Ops => correct::ops(sides?, arguments, limits),
            Step::Generate => correct::generate(sides?, &model),
            Step::Soak => correct::soak(sides?, arguments, limits),
            Step::Rates => Ok(speed::rates(sides?, arguments, limits)),
            Step::Model => Ok(speed::model(sides?, &model, usize::from(arguments.rounds))),
        })?;
    }
    if let Ok(sides) = &sides {
        let status = sides.status().unwrap_or_else(|error| json!({ "error": format!("{error:#}") }));
        report.parts.insert("device".to_owned(), status);
        report.parts.insert("device_log".to_owned(), sides.log().into());
    }
    report.write()?;
    println!("{:#}", report.json());
    Ok(if report.well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
