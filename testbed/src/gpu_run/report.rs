//! Results of a run: a line of JSON on stdout as soon as a stage has ended, and all of them in a file.

use std::io::Write as _;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};

use super::arguments::GpuRunArgs;

/// Results of the run so far.
pub(super) struct StageReport<'a> {
    arguments: &'a GpuRunArgs,
    parts: Map<String, Value>,
    well: bool,
    start: Instant,
}

impl<'a> StageReport<'a> {
    /// Creates an empty report of a run that starts now.
    pub(super) fn new(arguments: &'a GpuRunArgs) -> Self {
        Self { arguments, parts: Map::new(), well: true, start: Instant::now() }
    }

    /// Reports the end of a stage that began at `begin`. A failed stage is reported with the log of the
    /// device and its workers, and does not prevent later stages.
    pub(super) fn finish_stage(
        &mut self,
        name: &str,
        begin: Instant,
        done: Result<(Value, bool)>,
        log: impl FnOnce() -> Vec<String>,
    ) -> Result<()> {
        let (mut value, well) = match done {
            Ok((value, well)) => (json!({ "ok": well, "result": value }), well),
            Err(error) => (json!({ "ok": false, "error": format!("{error:#}") }), false),
        };
        value["seconds"] = begin.elapsed().as_secs_f64().into();
        if !well {
            value["log"] = log().into();
        }
        eprintln!("{name}: {}", if well { "ok" } else { "failed" });
        if well { self.add_part(name, value) } else { self.fail(name, value) }
    }

    /// Reports a result that makes the run fail.
    pub(super) fn fail(&mut self, name: &str, value: Value) -> Result<()> {
        self.well = false;
        self.add_part(name, value)
    }

    /// Prints a result as a line of JSON, and rewrites the output file if there is one.
    pub(super) fn add_part(&mut self, name: &str, value: Value) -> Result<()> {
        let mut out = std::io::stdout().lock();
        writeln!(out, "{}", json!({ name: &value })).context("print a result")?;
        out.flush().context("print a result")?;
        self.parts.insert(name.to_owned(), value);
        let Some(path) = &self.arguments.out else { return Ok(()) };
        std::fs::write(path, format!("{:#}\n", self.json()))
            .with_context(|| format!("write {}", path.display()))
    }

    fn json(&self) -> Value {
        let GpuRunArgs { cc, model, .. } = self.arguments;
        json!({ "ok": self.well, "cc": cc, "model": model, "parts": self.parts })
    }

    /// Reports the end of the run and returns its exit code.
    pub(super) fn finish(mut self) -> Result<ExitCode> {
        let seconds = self.start.elapsed().as_secs_f64();
        let well = self.well;
        self.add_part("end", json!({ "ok": well, "seconds": seconds }))?;
        Ok(if well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
