//! `vgpu-testbed soak`: several concurrent guest processes on one device execute random operations and
//! compare all data that comes back (`vgpu-standin soak`). Some are stopped for a moment now and then, at any
//! point.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use vgpu_serve::Facts;
use vgpu_testbed::bed::{self, Bed, random_facts, sessions};
use vgpu_testbed::programs;

use crate::place::{self, TargetDevice};

/// Maximum duration of a process's stop in milliseconds.
const STOP_MOST: u64 = 20;
const PAUSE_MOST: u64 = 60;

/// Version of the guest-host contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Protocol {
    /// Version 1, with a mailbox that all processes share.
    V1,
    /// Version 2, with a ring for each process.
    V2,
}

/// Options of `soak`.
#[derive(clap::Args)]
pub struct SoakArgs {
    /// Version of the guest-host contract that the device speaks.
    #[arg(long, value_enum, default_value_t = Protocol::V1)]
    protocol: Protocol,
    /// Executor of the device: `soft`; `cuda-loop`, the executor for real GPUs on our own libcuda and a soft
    /// device; with `null` no data comes back right. Not used with `VGPU_SYSFS`, which names the bus of an
    /// existing device.
    #[arg(long, default_value = "soft")]
    executor: String,
    /// Number of guest processes.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=60))]
    processes: u64,
    /// Number of minutes; fractions are allowed.
    #[arg(long, default_value_t = 10.0, conflicts_with = "operations")]
    minutes: f64,
    /// Number of operations of each process, instead of minutes.
    #[arg(long)]
    operations: Option<u64>,
    /// Seed of the operations and their data. Drawn at random if not given.
    #[arg(long)]
    seed: Option<u64>,
    /// Memory of the guest for devices of version 1. With less than 2M there are no shared windows, and all
    /// data goes through BAR1.
    #[arg(long, default_value = "1G")]
    ram: String,
    /// Print JSON: `seed`, `processes[]` (operations, kinds, bytes_in, bytes_out, wrong), their sums,
    /// `failed[]`, `stops`, `left`.
    #[arg(long)]
    json: bool,
}

/// A running guest process of the soak.
struct SoakProcess {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl SoakProcess {
    fn start(sysfs: &Path, seed: u64, arguments: &SoakArgs) -> Result<Self> {
        let mut command = Command::new(programs::launcher()?);
        command.arg(programs::standin()?).args(["soak", "--seed", &seed.to_string()]);
        match arguments.operations {
            Some(operations) => command.args(["--operations", &operations.to_string()]),
            None => command.args(["--seconds", &format!("{:.0}", arguments.minutes * 60.0)]),
        };
        command.env("VGPU_SYSFS", sysfs).env_remove("CUDA_VISIBLE_DEVICES");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().context("start a guest process")?;
        let lines = BufReader::new(child.stdout.take().context("no stdout")?);
        Ok(Self { child, lines })
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let pid = Pid::from_raw(self.child.id().cast_signed()).context("no process")?;
        Ok(kill_process(pid, signal)?)
    }

    /// Waits for the process's end and returns its report.
    fn finish(mut self) -> Result<Value> {
        let mut report = None;
        for line in (&mut self.lines).lines() {
            report = serde_json::from_str(&line?).ok().or(report);
        }
        let mut errors = String::new();
        self.child.stderr.take().context("no stderr")?.read_to_string(&mut errors)?;
        let status = self.child.wait()?;
        // A process with wrong bytes reports them and fails.
        match report {
            Some(report) => Ok(report),
            None => bail!("{status}: {}", errors.trim()),
        }
    }
}

impl Drop for SoakProcess {
    fn drop(&mut self) {
        // The process has ended, unless something else failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Repeatedly stops a random process for a moment until all have ended, and returns the number of stops.
fn disturb(guests: &mut [SoakProcess], rng: &mut StdRng) -> Result<u64> {
    let mut stops = 0;
    loop {
        std::thread::sleep(Duration::from_millis(rng.random_range(1..=PAUSE_MOST)));
        let mut running = Vec::new();
        for (index, guest) in guests.iter_mut().enumerate() {
            if guest.child.try_wait()?.is_none() {
                running.push(index);
            }
        }
        let Some(&index) = running.get(rng.random_range(0..running.len().max(1))) else { return Ok(stops) };
        guests[index].signal(Signal::STOP)?;
        std::thread::sleep(Duration::from_millis(rng.random_range(1..=STOP_MOST)));
        guests[index].signal(Signal::CONT)?;
        stops += 1;
    }
}

/// Runs the processes and prints the report.
pub fn run_soak(arguments: &SoakArgs) -> Result<ExitCode> {
    let seed = arguments.seed.unwrap_or_else(rand::random);
    let mut rng = StdRng::seed_from_u64(seed);
    let facts = Facts { memory_mib: 8192, ..random_facts(&["6.1"]) };
    let options: &[&str] = match arguments.protocol {
        Protocol::V1 => &["--protocol", "v1", "--ram", &arguments.ram],
        Protocol::V2 => &[],
    };
    let place = match place::others() {
        Some(folder) => TargetDevice::Others(folder),
        None => TargetDevice::Own(Bed::start_with(&arguments.executor, &[facts], options)?),
    };
    let mut guests = (0..arguments.processes)
        .map(|_| SoakProcess::start(place.sysfs(), rng.random(), arguments))
        .collect::<Result<Vec<_>>>()?;
    let stops = disturb(&mut guests, &mut rng)?;
    let (mut reports, mut failed) = (Vec::new(), Vec::new());
    for (index, guest) in guests.into_iter().enumerate() {
        match guest.finish() {
            Ok(report) => reports.push(report),
            Err(error) => failed.push(format!("process {index}: {error:#}")),
        }
    }
    // Each process announces its end.
    let gone = |status: &Value| {
        let none = sessions(status).iter().all(|session| session["state"] == "no context");
        none && status["devices"][0]["allocated"] == 0
    };
    let left =
        bed::until(place.sysfs(), "all memory is given back", gone).err().map(|error| format!("{error:#}"));
    let sum = |key: &str| reports.iter().filter_map(|report| report[key].as_u64()).sum::<u64>();
    let [operations, bytes_in, bytes_out, wrong] = ["operations", "bytes_in", "bytes_out", "wrong"].map(sum);
    let well = wrong == 0 && failed.is_empty() && left.is_none();
    if arguments.json {
        let report = json!({
            "seed": seed,
            "processes": reports,
            "operations": operations,
            "bytes_in": bytes_in,
            "bytes_out": bytes_out,
            "wrong": wrong,
            "failed": failed,
            "stops": stops,
            "left": left,
        });
        println!("{report:#}");
    } else {
        for (index, report) in reports.iter().enumerate() {
            let [operations, bytes_in, bytes_out, wrong] =
                ["operations", "bytes_in", "bytes_out", "wrong"].map(|key| &report[key]);
            println!(
                "{index}: {operations} operations, {bytes_in} bytes in, {bytes_out} out and compared, {wrong} wrong"
            );
        }
        for failure in failed.iter().chain(&left) {
            println!("{failure}");
        }
        println!(
            "seed {seed}: {operations} operations, {bytes_in} bytes in, {bytes_out} out and compared, {wrong} wrong, {stops} stops"
        );
    }
    Ok(if well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
