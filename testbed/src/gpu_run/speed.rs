//! Measurements of both sides in alternation: medians, and the device's as a fraction of native.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};
use vgpu_testbed::programs;

use super::arguments::GpuRunArgs;
use super::limit::{self, Limits};
use super::model::{Model, ModelRun};
use super::side::Sides;
use crate::bench::median;

/// Measured values of each figure, by name and side.
#[derive(Default)]
struct Figures(BTreeMap<String, [Vec<f64>; 2]>);

impl Figures {
    fn add(&mut self, side: &str, name: impl Into<String>, value: f64) {
        self.0.entry(name.into()).or_default()[usize::from(side == "through")].push(value);
    }

    /// Returns the report `{name: {native, through, ratio, runs}}` with medians; the ratio is through divided
    /// by native.
    fn report(self) -> Value {
        let both =
            |(_, [native, through]): &(String, [Vec<f64>; 2])| !native.is_empty() && !through.is_empty();
        let row = |(name, [native, through]): (String, [Vec<f64>; 2])| {
            let runs = through.len();
            let (native, through) = (median(native), median(through));
            (name, json!({ "native": native, "through": through, "ratio": through / native, "runs": runs }))
        };
        Value::Object(self.0.into_iter().filter(both).map(row).collect::<Map<_, _>>())
    }

    /// Returns the report and whether `done` succeeded. After a failure it contains the values measured
    /// before it, and the error.
    fn up_to(self, done: Result<()>) -> (Value, bool) {
        let mut report = self.report();
        let well = match done {
            Ok(()) => true,
            Err(error) => {
                report["error"] = format!("{error:#}").into();
                false
            }
        };
        (report, well)
    }
}

/// Runs the rounds of a measurement: at least one, and up to `most` while time permits.
fn rounds(most: usize, limits: Limits, mut round: impl FnMut(usize) -> Result<()>) -> Result<()> {
    for number in 0..most {
        let start = Instant::now();
        round(number)?;
        let left = limits.left().unwrap_or(Duration::ZERO);
        if number + 1 < most && left < start.elapsed() {
            eprintln!("{} of {most} rounds are made: there is no time for another one", number + 1);
            return Ok(());
        }
    }
    Ok(())
}

/// Measures a model's times: loading from the disk first, then with the file in memory, with and without
/// graphs.
pub fn model(sides: &Sides, model: &Model, rounds: usize) -> (Value, bool) {
    let mut figures = Figures::default();
    let done = model_runs(sides, model, rounds, &mut figures);
    figures.up_to(done)
}

fn model_runs(sides: &Sides, model: &Model, most: usize, figures: &mut Figures) -> Result<()> {
    // A run without measurement fills the driver's cache of compiled code.
    for (_, side) in sides.both(0) {
        model.measure(side, 2, true)?;
    }
    rounds(most, model.limits, |round| {
        for (name, side) in sides.both(round) {
            model.forget()?;
            let cold = model.measure(side, 1, true)?;
            figures.add(name, "load_cold_s", cold.load_s);
            figures.add(name, "first_token_cold_s", cold.first_token_s);
        }
        for graphs in [true, false] {
            for (name, side) in sides.both(round) {
                let ModelRun { load_s, first_token_s, prompt_tokens_per_second, decode_tokens_per_second } =
                    model.measure(side, model.tokens, graphs)?;
                let with = if graphs { "graphs" } else { "no_graphs" };
                figures.add(name, "load_warm_s", load_s);
                figures.add(name, format!("first_token_s_{with}"), first_token_s);
                figures.add(name, format!("prompt_tokens_per_second_{with}"), prompt_tokens_per_second);
                figures.add(name, format!("decode_tokens_per_second_{with}"), decode_tokens_per_second);
            }
        }
        Ok(())
    })
}

/// Measures launches, round trips and copies, and reports which memory was used as pinned.
pub fn rates(sides: &Sides, arguments: &GpuRunArgs, limits: Limits) -> (Value, bool) {
    let (mut figures, mut pinned) = (Figures::default(), Map::new());
    let done = rates_runs(sides, arguments, limits, &mut figures, &mut pinned);
    let (mut report, well) = figures.up_to(done);
    report["pinned_memory"] = pinned.into();
    (report, well)
}

fn rates_runs(
    sides: &Sides,
    arguments: &GpuRunArgs,
    limits: Limits,
    figures: &mut Figures,
    pinned: &mut Map<String, Value>,
) -> Result<()> {
    rounds(usize::from(arguments.rounds), limits, |round| {
        for (name, side) in sides.both(round) {
            let mut command = side.command(&programs::standin()?)?;
            command.args(["rates", "--mib", &arguments.mib.to_string()]);
            command.args(["--launches", &arguments.launches.to_string()]);
            let seen: Map<String, Value> =
                serde_json::from_slice(&limit::run_limited(&mut command, limits, true)?)?;
            for (figure, value) in seen {
                if figure == "pinned_memory" {
                    pinned.insert(name.to_owned(), value);
                } else {
                    figures.add(name, figure, value.as_f64().context("a figure that is no number")?);
                }
            }
        }
        Ok(())
    })
}
