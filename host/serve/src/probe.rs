//! The command `probe`: asks this host's driver what the cuda executor relies on, for a report about a driver
//! that nobody has tried, and for the data that the recording libcuda is held to.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use vgpu_driver_probe::{Probe, Question as DriverQuestion, ask};

/// Hidden command in which this program answers a question, because such a process may crash or hang.
pub const ANSWER: &str = "__probe";

/// Options of the command `probe`.
#[derive(Debug, clap::Args)]
pub struct ProbeArguments {
    /// Library of the driver, by path or name.
    #[arg(long, value_name = "LIBRARY", default_value = "libcuda.so.1")]
    libcuda: PathBuf,
    /// Ask only these questions: facts, reservations, registrations, word-order, programmatic-edges,
    /// codes-after-a-fault, launch-cost, calls-behind-a-hold, queue-depth, teardown, end-with-memory.
    #[arg(long, value_name = "QUESTION", value_delimiter = ',', value_parser = parse_question)]
    only: Vec<DriverQuestion>,
    /// Ask each question again in a process that is confined as a session's worker process is.
    #[arg(long)]
    confined: bool,
    /// Let confined processes connect to UNIX sockets, for drivers that are not NVIDIA's.
    #[arg(long)]
    worker_connects: bool,
    /// Time for all questions in seconds. Those that have no time left are listed as unanswered.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    limit: Option<u32>,
}

/// Options of the hidden command [`ANSWER`].
#[derive(Debug, clap::Args)]
pub struct Question {
    question: String,
}

/// Parses a question by its name.
fn parse_question(name: &str) -> Result<DriverQuestion, String> {
    serde_json::from_value(name.into()).map_err(|error| error.to_string())
}

/// Answers one question, in the process that was started for it.
pub fn answer(question: &Question) -> ExitCode {
    vgpu_driver_probe::answer(&question.question, vgpu_worker::confine_process)
}

/// Asks the driver and prints the report. Returns exit code 1 if a process did not end by itself with an
/// answer.
pub fn probe_driver(arguments: &ProbeArguments) -> Result<ExitCode> {
    let only = &arguments.only;
    let probe = Probe {
        libcuda: arguments.libcuda.clone(),
        program: ["/proc/self/exe", ANSWER].map(PathBuf::from).to_vec(),
        questions: if only.is_empty() { DriverQuestion::ALL.to_vec() } else { only.clone() },
        confined: arguments.confined,
        connects: arguments.worker_connects,
        limit: arguments.limit.map(|seconds| Duration::from_secs(seconds.into())),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let report = runtime.block_on(ask(&probe)).context("start a process that asks the driver")?;
    let text = serde_json::to_string_pretty(&report.json)? + "\n";
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(ExitCode::from(u8::from(!report.complete)))
}
