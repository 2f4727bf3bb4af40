//! Measures the cost of calls, copies and decoded tokens with version 2 of the contract, on the simulated
//! bus.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::{Number, Value, json};
use vgpu_llama::event::{Event, Job};
use vgpu_testbed::bed::Bed;
use vgpu_testbed::guest::{Place, Settings, model};
use vgpu_testbed::programs;
use vgpu_testbed::traffic::{PerToken, Traffic};

use super::measure::{WARM, facts, median};

/// Number of tokens over which messages are counted.
const TOKENS: usize = 8;
/// The oldest compute capability on which GGML captures graphs.
const CC: &str = "7.0";

/// Parameters of the measurements.
#[derive(Clone, Copy, Debug)]
pub struct Amount<'a> {
    /// Name of the device's executor.
    pub executor: &'a str,
    /// Number of launches in a round.
    pub launches: usize,
    /// Number of mebibytes copied in a round.
    pub mib: usize,
    /// Number of rounds of each measurement.
    pub rounds: usize,
    /// Model whose tokens are counted.
    pub model: &'a str,
}

/// Runs a command of the stand-in under the launcher and returns the JSON that it prints.
pub(super) fn play(bed: &Bed, arguments: &[String]) -> Result<Value> {
    let output = Command::new(programs::launcher()?)
        .arg(programs::standin()?)
        .args(arguments)
        .env("VGPU_SYSFS", bed.sysfs())
        .stdin(Stdio::null())
        .output()
        .context("start the stand-in")?;
    if !output.status.success() {
        bail!("the stand-in: {}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    serde_json::from_slice(&output.stdout).context("understand the stand-in")
}

/// Returns the median of a list of seconds in the stand-in's answer.
fn seconds(answer: &Value, name: &str) -> Result<f64> {
    let seconds: Vec<f64> =
        serde_json::from_value(answer[name].clone()).with_context(|| format!("no {name}"))?;
    Ok(median(seconds))
}

/// Measures copies in both directions against memcpy, in GB/s. Fails if downloaded bytes differ from the
/// uploaded ones, except with the null executor, which stores no bytes.
pub fn copies(bed: &Bed, executor: &str, mib: usize, rounds: usize, kib: Option<u32>) -> Result<Value> {
    let mut arguments =
        ["copies", "--mib", &mib.to_string(), "--rounds", &rounds.to_string()].map(str::to_owned).to_vec();
    arguments.extend(kib.into_iter().flat_map(|kib| ["--kib".to_owned(), kib.to_string()]));
    let answer = play(bed, &arguments)?;
    if executor != "null" && answer["same"] != true {
        bail!("what came back is not what went there");
    }
    let bytes = answer["bytes"].as_f64().context("no bytes")?;
    let rate = |name: &str| -> Result<f64> { Ok(bytes / seconds(&answer, name)? / 1e9) };
    Ok(json!({
        "copies": answer["copies"],
        "memcpy_gbps": rate("memcpy_s")?,
        "memcpy_to_shared_gbps": rate("memcpy_to_shared_s")?,
        "memcpy_from_shared_gbps": rate("memcpy_from_shared_s")?,
        "h2d_gbps": rate("to_device_s")?,
        "d2h_gbps": rate("from_device_s")?,
    }))
}

/// Measures all figures on a device with these options and returns them.
pub fn figures(amount: Amount<'_>, options: &[&str]) -> Result<Value> {
    let bed = Bed::start_with(amount.executor, &[facts(CC)], options)?;
    let [launches, rounds] = [amount.launches, amount.rounds].map(|count| count.to_string());
    let calls = play(&bed, &["calls", "--launches", &launches, "--rounds", &rounds].map(str::to_owned))?;
    let launches = calls["launches"].as_f64().context("no launches")? / seconds(&calls, "launches_s")?;
    let micro = |name: &str| calls["synchronize_ns"][name].as_f64().map(|ns| ns / 1e3);
    let copies = copies(&bed, amount.executor, amount.mib, amount.rounds, None)?;
    Ok(json!({
        "launches_per_second": launches,
        "sync_rtt_us": { "p50": micro("p50"), "p99": micro("p99") },
        "h2d_gbps": copies["h2d_gbps"],
        "d2h_gbps": copies["d2h_gbps"],
        "memcpy_gbps": copies["memcpy_gbps"],
        "per_token": {
            "graphs": tokens(&bed, amount.model, true)?,
            "no_graphs": tokens(&bed, amount.model, false)?,
        },
    }))
}

/// Measures the messages of a decoded token, and how many of them the guest waits for.
fn tokens(bed: &Bed, name: &str, graphs: bool) -> Result<Value> {
    let per = traffic(bed, name, graphs)?;
    let total = match per.messages.values().map(Number::as_u64).sum::<Option<u64>>() {
        Some(whole) => json!(whole),
        None => json!(per.messages.values().filter_map(Number::as_f64).sum::<f64>()),
    };
    // Padding and separate joins are left out, because they depend on timing.
    Ok(json!({ "messages": total, "kinds": per.messages, "waits": per.waits }))
}

fn traffic(bed: &Bed, name: &str, graphs: bool) -> Result<PerToken> {
    let mut settings = Settings::new(model(name)?, WARM + TOKENS);
    settings.pause_from = Some(WARM);
    settings.past_end = true;
    settings.graphs = graphs;
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
    Ok(after.since(&before, (to - from) as u64))
}
