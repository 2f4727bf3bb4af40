//! Configurations of the transport in booted guests. If a guest cannot be booted, the measurement fails
//! instead of omitting the row.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use vgpu_llama::event::{Event, Job};
use vgpu_testbed::backends::Backend;
use vgpu_testbed::guest::model;
use vgpu_testbed::machine::{GuestMachine, Options};

use super::super::measure::WARM;
use super::options::{TransportArgs, stand_in};

/// Limit of a command, generous because an emulated processor is slow and the machine may be shared.
const LIMIT: Duration = Duration::from_mins(10);

/// A configuration of the transport.
struct Way {
    name: &'static str,
    user: &'static str,
    /// Whether every 8 bytes cost an exit, so that little is copied and no model is uploaded.
    slow: bool,
    /// Text that `check` must report of the window, to confirm that the row measures this configuration.
    says: &'static str,
}

/// A guest that is booted for the measurement.
struct Boot {
    protocol: &'static str,
    huge_pages: u32,
    ways: &'static [Way],
}

const BOOTS: &[Boot] = &[
    Boot {
        protocol: "v1",
        huge_pages: 24,
        ways: &[
            Way {
                name: "VM v1, window, root",
                user: "root",
                slow: false,
                says: "of this guest's large pages",
            },
            Way { name: "VM v1, BAR1, user", user: "guest", slow: true, says: "through BAR1" },
        ],
    },
    Boot {
        protocol: "v2",
        huge_pages: 8,
        ways: &[
            Way { name: "VM v2, BAR2, user", user: "guest", slow: false, says: "write-combined" },
            Way {
                name: "VM v2, guest pages, root",
                user: "root",
                slow: false,
                says: "of this guest's large pages",
            },
        ],
    },
];

/// Measures every configuration in a booted guest.
pub fn rows(arguments: &TransportArgs) -> Result<Vec<Value>> {
    let mut rows = Vec::new();
    for boot in BOOTS {
        let device = ["--protocol", boot.protocol, "--cc", "6.1"].map(str::to_owned).to_vec();
        let model = model(&arguments.model)?;
        let backend = Backend::Cuda12.folder()?;
        let shares = vec![backend, model.parent().context("a model is in a folder")?.to_owned()];
        let executor = arguments.executor.clone();
        let options = Options { executor, device, huge_pages: boot.huge_pages, shares, ..Options::default() };
        let mut guest = GuestMachine::boot(&options)
            .with_context(|| format!("boot a guest for the rows of VM {}", boot.protocol))?;
        for way in boot.ways {
            let row = measure(arguments, &mut guest, way).with_context(|| format!("measure {}", way.name))?;
            rows.push(row);
        }
    }
    Ok(rows)
}

/// Runs a command, which must succeed, and returns its stdout.
fn output(guest: &mut GuestMachine, user: &str, command: &[&str]) -> Result<String> {
    let (end, out, err) = guest.output(user, command, LIMIT)?;
    if end.code() == 0 { Ok(out) } else { bail!("{command:?} ended with {}: {out}{err}", end.code()) }
}

fn measure(arguments: &TransportArgs, guest: &mut GuestMachine, way: &Way) -> Result<Value> {
    let kib = if way.slow { 64 } else { arguments.mib << 10 };
    let stand_in = stand_in(arguments.calls, kib);
    let command: Vec<&str> =
        ["vgpu-run", "--", "vgpu-standin"].into_iter().chain(stand_in.iter().map(String::as_str)).collect();
    let mut row: Value = serde_json::from_str(&output(guest, way.user, &command)?)?;
    row["way"] = json!(way.name);
    if arguments.executor != "null" && row["same"] != true {
        bail!("what came back is not what went there");
    }
    let window = window(guest, way.user)?;
    if !window.contains(way.says) {
        bail!("`check` says of the window: {window}; expected: {}", way.says);
    }
    row["window"] = json!(window);
    if way.slow {
        row["exits_missing"] = json!("uploading a model takes hours; see sim v1, BAR1");
    } else {
        row["exits_per_token"] = json!(exits(arguments, guest, way.user)?);
    }
    Ok(row)
}

/// Returns the line of `check` that describes the window and the reason for its kind.
fn window(guest: &mut GuestMachine, user: &str) -> Result<String> {
    let command = ["vgpu-run", "check", "--only", "window", "--json"];
    let report: Value = serde_json::from_str(&output(guest, user, &command)?)?;
    let checks = report["checks"].as_array().context("a report without checks")?;
    let window = checks.iter().find(|check| check["id"] == "window").context("no link `window`")?;
    let texts = window["details"].as_array().map(Vec::as_slice).unwrap_or_default().iter();
    let texts: Vec<&str> =
        window["found"].as_str().into_iter().chain(texts.filter_map(Value::as_str)).collect();
    Ok(texts.join("; "))
}

/// Returns the register accesses of one token: the difference of the device's count between two tokens'
/// lines.
fn exits(arguments: &TransportArgs, guest: &mut GuestMachine, user: &str) -> Result<f64> {
    let backend = Backend::Cuda12.folder()?;
    let job = serde_json::to_string(&[Job { prompt: "The capital of France is".to_owned(), forced: None }])?;
    let script = format!(
        "echo '{job}' > /tmp/jobs.$$ && exec vgpu-run -- vgpu-llama --gpu-backend {0}/libggml-cuda.so --libraries {0} --model {1} \
         --jobs /tmp/jobs.$$ --tokens {2} --past-end --log warn",
        backend.display(),
        model(&arguments.model)?.display(),
        WARM + arguments.tokens + 1,
    );
    let (mut first, mut last) = (None, None);
    let end = guest.follow(user, &["sh", "-c", &script], LIMIT, |line, status| {
        if let Ok(Event::Token { index, .. }) = serde_json::from_str(line)
            && (index == WARM || index == WARM + arguments.tokens)
        {
            let now = Some((index, accesses(&status()?)?));
            if index == WARM {
                first = now;
            } else {
                last = now;
            }
        }
        Ok(())
    })?;
    if end.code() != 0 {
        bail!("the model ended with {}", end.code());
    }
    let ((from, before), (to, after)) = first.zip(last).context("too few tokens to count")?;
    #[allow(clippy::cast_precision_loss, reason = "a figure for people")]
    Ok((after - before) as f64 / (to - from) as f64)
}

/// Returns the accesses that a status has counted for all devices.
fn accesses(status: &Value) -> Result<u64> {
    let accesses = &status["accesses"];
    let count = |bar: &str, field: &str| accesses[bar][field].as_u64();
    let all = [("bar0", "reads"), ("bar0", "writes"), ("bar1", "reads"), ("bar1", "writes")];
    all.iter()
        .map(|(bar, field)| count(bar, field))
        .sum::<Option<u64>>()
        .with_context(|| format!("no accesses in {status}"))
}
