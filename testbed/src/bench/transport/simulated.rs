//! Configurations of the transport on the simulated bus, including version 1 with an injected cost of each
//! register access, and without a window of guest memory.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use vgpu_llama::event::{Event, Job};
use vgpu_testbed::bed::Bed;
use vgpu_testbed::guest::{Place, Settings, model};
use vgpu_testbed::programs;
use vgpu_testbed::traffic::Traffic;

use super::super::measure::{WARM, facts};
use super::options::{TransportArgs, stand_in};

/// A configuration of the transport.
struct Way {
    name: &'static str,
    options: &'static [&'static str],
    /// Whether a register access is so expensive that fewer calls are made and tokens are not counted, whose
    /// number is the same anyway.
    slow: bool,
}

const WAYS: &[Way] = &[
    Way { name: "sim v2", options: &[], slow: false },
    Way { name: "sim v2, guest pages", options: &["--ram", "1G"], slow: false },
    Way { name: "sim v1", options: &["--protocol", "v1"], slow: false },
    // Less memory than the smallest window.
    Way { name: "sim v1, BAR1", options: &["--protocol", "v1", "--ram", "1M"], slow: false },
    Way { name: "sim v1, 10 us", options: &["--protocol", "v1", "--access-cost", "10us"], slow: true },
    Way { name: "sim v1, 88 us", options: &["--protocol", "v1", "--access-cost", "88us"], slow: true },
];

/// Configurations with a worker process between the device and its executor.
const WORKERS: &[Way] = &[
    Way { name: "sim v2, worker", options: &["--worker"], slow: false },
    Way { name: "sim v2, guest pages, worker", options: &["--ram", "1G", "--worker"], slow: false },
];

/// Measures every configuration on the simulated bus.
pub fn rows(arguments: &TransportArgs) -> Result<Vec<Value>> {
    let workers = if arguments.worker { WORKERS } else { &[] };
    WAYS.iter().chain(workers).map(|way| measure(arguments, way)).collect()
}

/// Runs the stand-in in one configuration and returns its answer.
fn measure(arguments: &TransportArgs, way: &Way) -> Result<Value> {
    let bed = Bed::start_with(&arguments.executor, &[facts("6.1")], way.options)?;
    let calls = if way.slow { arguments.calls / 10 } else { arguments.calls };
    let output = Command::new(programs::launcher()?)
        .arg(programs::standin()?)
        .args(stand_in(calls, arguments.mib << 10))
        .env("VGPU_SYSFS", bed.sysfs())
        .stdin(Stdio::null())
        .output()
        .context("start the stand-in")?;
    if !output.status.success() {
        bail!("{}: {}: {}", way.name, output.status, String::from_utf8_lossy(&output.stderr));
    }
    let mut answer: Value = serde_json::from_slice(&output.stdout)?;
    answer["way"] = json!(way.name);
    // The null executor stores no bytes, so it cannot return the same.
    if arguments.executor != "null" && answer["same"] != true {
        bail!("{}: what came back is not what went there", way.name);
    }
    if way.slow {
        answer["exits_missing"] = json!("as without the cost");
    } else {
        answer["exits_per_token"] = json!(exits(arguments, &bed)?);
    }
    Ok(answer)
}

/// Returns the register accesses of one token.
fn exits(arguments: &TransportArgs, bed: &Bed) -> Result<f64> {
    let mut settings = Settings::new(model(&arguments.model)?, WARM + arguments.tokens);
    settings.pause_from = Some(WARM);
    settings.past_end = true;
    let job = Job { prompt: "The capital of France is".to_owned(), forced: None };
    let mut guest = settings.start(Place::Gpu(bed.sysfs()), &[job])?;
    let (mut first, mut last) = (None, None);
    while let Some(event) = guest.event()? {
        if let Event::Paused { decoded, .. } = event {
            let now = (decoded, Traffic::read(bed.sysfs(), guest.pid())?);
            if first.is_none() {
                first = Some(now);
            } else {
                last = Some(now);
            }
            guest.resume()?;
        }
    }
    guest.finish()?;
    let ((from, before), (to, after)) = first.zip(last).context("too few tokens to count")?;
    after.since(&before, (to - from) as u64).accesses.as_f64().context("no count of accesses")
}
