//! The command `status`: shows the VMs of each GPU, what running devices do, and for which processes.

use std::io::{self, IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::json;

use crate::ask::{Answers, Questions};
use crate::control::{ControlPath, Instance, places};
use crate::gpu_report::{self, GpuReport};
use crate::gpus::Reading;
use crate::instances;

/// Interval between two readings of the GPUs' figures, and between two reports of `--watch`.
const SECOND: Duration = Duration::from_secs(1);
/// Time for which devices that have not answered are waited for, once and for each report of `--watch`.
const ANSWERS_MOST: Duration = Duration::from_secs(2);
const WATCHED_ANSWERS_MOST: Duration = Duration::from_millis(500);
/// Escape sequence that moves the cursor to the top left and clears the screen below it.
const REDRAW: &str = "\x1b[H\x1b[J";
/// What is said when there is nothing to show.
const NOTHING: &str = "no device is served that this user may ask about";

/// Options of the command `status`.
#[derive(Debug, clap::Args)]
pub struct StatusArguments {
    /// Name of the device to query, as the list shows it; all running devices by default.
    name: Option<String>,
    /// Control socket to query, if it is not in one of the usual directories.
    #[arg(long, value_name = "SOCKET", conflicts_with = "name")]
    control: Option<PathBuf>,
    /// Directory in which the devices of this host find each other, if `serve` was given one.
    #[arg(long, value_name = "DIR")]
    shares: Option<PathBuf>,
    /// Print one JSON object; with --watch one a line.
    #[arg(long)]
    json: bool,
    /// Print again every second, until Ctrl-C.
    #[arg(long)]
    watch: bool,
}

/// Prints the state of GPUs and devices. Returns exit code 0, or 1 if no device is served or one does not
/// answer.
pub fn show_status(arguments: &StatusArguments) -> Result<ExitCode> {
    if arguments.watch { watch(arguments) } else { show_once(arguments) }
}

/// State of GPUs and devices at one moment.
struct Report {
    gpus: Vec<GpuReport>,
    answers: Answers,
}

impl StatusArguments {
    /// Returns the devices that are asked.
    fn places(&self) -> Vec<ControlPath> {
        if let Some(socket) = &self.control {
            return vec![ControlPath::at(socket)];
        }
        let wanted = |place: &ControlPath| self.name.as_ref().is_none_or(|name| *name == place.name);
        places().into_iter().filter(wanted).collect()
    }

    fn read(&self) -> Reading {
        Reading::now(self.shares.as_deref())
    }

    /// Returns whether only some devices are asked for.
    const fn is_filtered(&self) -> bool {
        self.name.is_some() || self.control.is_some()
    }

    /// Returns the GPUs of the devices that are asked for.
    fn gpus(&self, before: &Reading, now: &Reading, instances: &[Instance]) -> Vec<GpuReport> {
        let mut gpus = gpu_report::reports(before, now);
        if self.is_filtered() {
            let socket = self.control.as_deref().map(|socket| ControlPath::at(socket).name);
            let names: Vec<String> = self.name.clone().into_iter().chain(socket).collect();
            let is_asked = |name: &str, process: u64| {
                names.iter().any(|known| known == name)
                    || instances.iter().any(|instance| u64::from(instance.process) == process)
            };
            gpus.retain(|gpu| gpu.has(is_asked));
        }
        gpus
    }
}

/// Prints one report. The part that is read from the directory needs two readings, a second apart. Devices
/// are asked meanwhile.
fn show_once(arguments: &StatusArguments) -> Result<ExitCode> {
    let start = Instant::now();
    let mut questions = Questions::new();
    questions.ask(arguments.places())?;
    let before = arguments.read();
    if !before.is_empty() {
        thread::sleep((start + SECOND).saturating_duration_since(Instant::now()));
    }
    let now = arguments.read();
    let mut out = io::stdout();
    let early = if arguments.json || arguments.is_filtered() {
        None
    } else {
        // Whoever reads this does not wait for a device that hangs.
        let text = text_of_gpus(&arguments.gpus(&before, &now, &[]));
        out.write_all(text.as_bytes())?;
        out.flush()?;
        Some(text)
    };
    let answers = questions.answers_by(start + ANSWERS_MOST);
    let report = Report { gpus: arguments.gpus(&before, &now, &answers.instances), answers };
    let text = match early {
        _ if arguments.json => report.json(),
        None => report.text(),
        Some(early) => report.instances_text(!early.is_empty()),
    };
    out.write_all(text.as_bytes())?;
    for failure in &now.failures {
        eprintln!("vgpu-device: {failure}");
    }
    for device in &report.answers.unanswered {
        eprintln!("vgpu-device: {}", device.reason);
    }
    if report.answers.are_none() && !arguments.json {
        eprintln!("vgpu-device: {NOTHING}");
    }
    Ok(if report.answers.are_complete() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Prints a report each second, until this process is interrupted or nobody reads any more.
fn watch(arguments: &StatusArguments) -> Result<ExitCode> {
    let is_terminal = io::stdout().is_terminal();
    let mut questions = Questions::new();
    let mut before = Reading::default();
    let mut due = Instant::now();
    loop {
        let now = arguments.read();
        questions.ask(arguments.places())?;
        let answers = questions.answers_by(due + WATCHED_ANSWERS_MOST);
        let report = Report { gpus: arguments.gpus(&before, &now, &answers.instances), answers };
        let text = match (arguments.json, is_terminal) {
            (true, _) => report.json(),
            (false, true) => format!("{REDRAW}{}", report.watched(&now)),
            (false, false) => report.watched(&now) + "\n",
        };
        if arguments.json {
            for failure in &now.failures {
                eprintln!("vgpu-device: {failure}");
            }
        }
        let mut out = io::stdout().lock();
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(ExitCode::SUCCESS),
            written => written?,
        }
        drop(out);
        before = now;
        due = (due + SECOND).max(Instant::now());
        thread::sleep(due.saturating_duration_since(Instant::now()));
    }
}

impl Report {
    fn json(&self) -> String {
        let Answers { instances, unanswered } = &self.answers;
        let unanswered: Vec<_> =
            unanswered.iter().map(|device| json!({ "name": device.name, "reason": device.reason })).collect();
        json!({ "instances": instances, "gpus": self.gpus, "unanswered": unanswered }).to_string() + "\n"
    }

    fn text(&self) -> String {
        let gpus = text_of_gpus(&self.gpus);
        let instances = self.instances_text(!gpus.is_empty());
        gpus + &instances
    }

    /// Returns the part about the devices that have answered, which follows another one if `is_second`.
    fn instances_text(&self, is_second: bool) -> String {
        let mut text = String::new();
        for instance in &self.answers.instances {
            if is_second || !text.is_empty() {
                text.push('\n');
            }
            instances::write(&mut text, instance);
        }
        text
    }

    /// Returns the text with what is missing in it, which standard error tells otherwise.
    fn watched(&self, now: &Reading) -> String {
        let mut text = self.text();
        let unanswered = self.answers.unanswered.iter().map(|device| &device.reason);
        for reason in now.failures.iter().chain(unanswered) {
            text += reason;
            text.push('\n');
        }
        if text.is_empty() {
            text = format!("{NOTHING}\n");
        }
        text
    }
}

fn text_of_gpus(gpus: &[GpuReport]) -> String {
    let mut text = String::new();
    for gpu in gpus {
        gpu.write(&mut text);
    }
    text
}
