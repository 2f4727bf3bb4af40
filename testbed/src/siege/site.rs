//! Interface of a bus under siege, whatever its kind.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;
use vgpu_testbed::programs;

use super::{plan, report};

/// Limit of the wait for a device to free the resources of dead sessions, and for a program to start.
pub const PATIENCE: Duration = Duration::from_mins(3);
/// Time between two queries of a device's status.
const PAUSE: Duration = Duration::from_millis(20);

/// Load of a device, from its status.
#[derive(Clone, Debug, Default)]
pub struct DeviceLoad {
    /// Number of sessions, including those that are ending.
    pub sessions: usize,
    /// Number of sessions with unfinished work.
    pub busy: usize,
    /// Number of bytes charged to the sessions.
    pub charged: u64,
    /// Number of bytes of images that are kept for later sessions.
    pub kept_images: u64,
    /// Longest attach in microseconds, if the device counts it.
    pub longest_attach_us: Option<u64>,
    /// Longest register access in microseconds, if the device counts it.
    pub longest_access_us: Option<u64>,
}

impl DeviceLoad {
    /// Reads the status of a device, or of a mediator.
    pub fn from_status(device: &Value) -> Self {
        let sessions = device["sessions"].as_array().map(Vec::as_slice).unwrap_or_default();
        // A device of version 1 has owners that only query it.
        let real = || sessions.iter().filter(|session| session["state"] != "no context");
        let number = |key: &str| device[key].as_u64();
        Self {
            sessions: real().count(),
            busy: real().filter(|session| session["messages"].as_u64() > session["done"].as_u64()).count(),
            charged: number("charged_bytes").unwrap_or(0).max(number("allocated").unwrap_or(0)),
            kept_images: number("kept_image_bytes").unwrap_or(0),
            longest_attach_us: number("longest_attach_us"),
            longest_access_us: number("longest_access_us"),
        }
    }
}

/// A bus that can be besieged, with the device or mediator behind it.
pub trait Site {
    /// Returns the name of the bus in the report.
    fn name(&self) -> &'static str;

    /// Returns the classes of hostile programs that can run on the bus.
    fn classes(&self) -> Vec<&'static str>;

    /// Returns whether programs run under a kernel of their own, whose scheduling delays are not caused by
    /// the device.
    fn has_own_kernel(&self) -> bool {
        false
    }

    /// Runs one round and returns what its programs report.
    fn round(&mut self, round: &plan::Round) -> Result<report::Round>;

    /// Reads the load from the device's status.
    fn state(&mut self) -> Result<DeviceLoad>;

    /// Returns the ID of the process that holds the sessions' resources: the device process or the mediator.
    fn pid(&self) -> Result<u32>;

    /// Starts endless work in a program, sends the device SIGTERM, waits until it has ended, and returns how
    /// long that took.
    fn terminate(self: Box<Self>) -> Result<Duration>;
}

/// Waits until `wanted` accepts a device's load. Returns the last load, and whether it was accepted.
pub fn until(site: &mut dyn Site, wanted: impl Fn(&DeviceLoad) -> bool) -> Result<(DeviceLoad, bool)> {
    let end = Instant::now() + PATIENCE;
    loop {
        let state = site.state()?;
        if wanted(&state) {
            return Ok((state, true));
        }
        if Instant::now() > end {
            return Ok((state, false));
        }
        std::thread::sleep(PAUSE);
    }
}

/// Returns the resident memory of a process in KiB.
pub fn rss_kib(pid: u32) -> Result<u64> {
    let path = format!("/proc/{pid}/status");
    let text = std::fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .with_context(|| format!("find VmRSS in {path}"))?;
    let kib = line.trim().trim_end_matches("kB").trim();
    kib.parse().with_context(|| format!("read {line:?}"))
}

/// Returns the arguments of `vgpu-standin` for a round. `bus` selects the bus of each hostile program, if
/// any.
pub fn arguments(round: &plan::Round, bus: impl Fn(usize) -> Option<OsString>) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = vec!["siege".into(), "round".into()];
    let numbers = [
        ("--good", round.good.to_string()),
        ("--kib", round.kib.to_string()),
        ("--seconds", round.seconds.to_string()),
        ("--patience", PATIENCE.as_secs_f64().to_string()),
        ("--seed", round.seed.to_string()),
    ];
    for (option, value) in numbers {
        arguments.extend([option.into(), value.into()]);
    }
    for (index, class) in round.hostile.iter().enumerate() {
        let mut hostile = OsString::from(class);
        if let Some(bus) = bus(index) {
            hostile.push("@");
            hostile.push(bus);
        }
        arguments.extend(["--hostile".into(), hostile]);
    }
    arguments
}

/// Runs the programs of a round on a simulated bus of this machine.
pub fn run_round(arguments: &[OsString], bus: &Path) -> Result<report::Round> {
    let mut command = Command::new(programs::standin()?);
    command.args(arguments).env("VGPU_SYSFS", bus).stdin(Stdio::null()).stderr(Stdio::inherit());
    let output = command.output().context("run a round")?;
    if !output.status.success() {
        bail!("a round: {}", output.status);
    }
    read(&String::from_utf8_lossy(&output.stdout))
}

/// Parses the report that a round prints.
pub fn read(printed: &str) -> Result<report::Round> {
    let line = printed.lines().last().unwrap_or_default();
    serde_json::from_str(line).with_context(|| format!("understand a round's report {printed:?}"))
}
