//! A guest process that runs cases one after the other, and is restarted when a case ends it.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use vgpu_ggml::report::{CaseReport, Listed, Outcome};
use vgpu_testbed::programs;

/// Number of final stderr lines that are kept.
const KEPT_LINES: usize = 40;

/// Description of the guest process that runs cases.
pub struct OpsCommand {
    /// Path of the backend library to examine.
    pub backend: PathBuf,
    /// Bus of the device; without one the program runs without the launcher.
    pub sysfs: Option<PathBuf>,
    /// Seed of the random inputs.
    pub seed: u64,
    /// Whether the device gets other inputs than the CPU, so that comparisons must fail.
    pub spoil: bool,
    /// Limit of a case.
    pub patience: Duration,
}

impl OpsCommand {
    fn command(&self) -> Result<Command> {
        let mut command = match &self.sysfs {
            Some(sysfs) => {
                let mut command = Command::new(programs::launcher()?);
                command.arg("--").arg(programs::ops()?).env("VGPU_SYSFS", sysfs);
                command
            }
            None => Command::new(programs::ops()?),
        };
        command.args(["--serve", "--json", "--backend"]).arg(&self.backend);
        command.arg("--seed").arg(self.seed.to_string());
        if self.spoil {
            command.arg("--spoil");
        }
        // GGML would start a debugger to print a backtrace.
        command.env("GGML_NO_BACKTRACE", "1").env_remove("CUDA_VISIBLE_DEVICES").current_dir("/");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Ok(command)
    }
}

/// A running guest process.
struct Running {
    child: Child,
    stdin: ChildStdin,
    lines: Receiver<String>,
    errors: Arc<Mutex<VecDeque<String>>>,
    threads: [JoinHandle<()>; 2],
}

/// Passes each line of a stream to `take` until the stream ends or is no UTF-8.
fn each_line(stream: impl std::io::Read, mut take: impl FnMut(String)) {
    for line in BufReader::new(stream).lines() {
        let Ok(line) = line else { return };
        take(line);
    }
}

impl Running {
    fn start(guest: &OpsCommand) -> Result<Self> {
        let mut child = guest.command()?.spawn().context("start vgpu-ops")?;
        let stdin = child.stdin.take().context("no stdin")?;
        let (stdout, stderr) =
            (child.stdout.take().context("no stdout")?, child.stderr.take().context("no stderr")?);
        let (sender, lines) = mpsc::channel();
        let errors: Arc<Mutex<VecDeque<String>>> = Arc::default();
        let kept = Arc::clone(&errors);
        let threads = [
            thread::spawn(move || {
                each_line(stdout, |line| {
                    // The receiver is gone once the worker has given up on this process.
                    let _ = sender.send(line);
                });
            }),
            thread::spawn(move || {
                each_line(stderr, |line| {
                    if let Ok(mut kept) = kept.lock() {
                        if kept.len() == KEPT_LINES {
                            kept.pop_front();
                        }
                        kept.push_back(line);
                    }
                });
            }),
        ];
        Ok(Self { child, stdin, lines, errors, threads })
    }

    /// Waits for the process, after killing it if `killed` gives a reason, and returns a description of its
    /// end with its last messages. A process that exits by itself could not work at all; that is an error,
    /// and no case's fault.
    fn finish(mut self, killed: Option<&str>) -> Result<String> {
        if killed.is_some() {
            self.child.kill().context("kill vgpu-ops")?;
        }
        let status = self.child.wait().context("wait for vgpu-ops")?;
        let exited = status.code().is_some();
        for thread in self.threads {
            // The threads end with the pipes; a panic in one loses only its lines.
            let _ = thread.join();
        }
        let errors = self.errors.lock().map(|mut errors| std::mem::take(&mut *errors)).unwrap_or_default();
        let said: Vec<_> = errors.iter().map(|line| line.trim()).filter(|line| telling(line)).collect();
        let how = killed.map_or_else(|| status.to_string(), str::to_owned);
        let ended = if said.is_empty() { how } else { format!("{how}: {}", said.join(" | ")) };
        if exited {
            bail!("vgpu-ops ended: {ended}");
        }
        Ok(ended)
    }
}

/// Returns whether a line of stderr may describe an error, rather than the start of the program.
fn telling(line: &str) -> bool {
    let start = ["load_backend:", "ggml_cuda_init:", "Device ", "warning: process"];
    !line.is_empty() && !start.iter().any(|start| line.starts_with(start))
}

/// Runs cases in a guest process, which is replaced when one ends.
pub struct Worker<'a> {
    guest: &'a OpsCommand,
    running: Option<Running>,
}

impl<'a> Worker<'a> {
    /// Creates a worker, whose process starts with the first case.
    pub const fn new(guest: &'a OpsCommand) -> Self {
        Self { guest, running: None }
    }

    /// Runs one case. Returns an error only if the test bed itself fails; failures of the guest process are
    /// recorded in the report.
    pub fn run_case(&mut self, case: &Listed) -> Result<CaseReport> {
        let mut running = match self.running.take() {
            Some(running) => running,
            None => Running::start(self.guest)?,
        };
        let failed = |why| CaseReport {
            case: case.case.clone(),
            op: case.op.clone(),
            types: case.types.clone(),
            outcome: Outcome::Failed,
            error: None,
            limit: case.limit,
            why: Some(why),
            ms: None,
        };
        // If the process has ended, the code below notices that its stdout is closed.
        let _ = writeln!(running.stdin, "{}", case.case);
        match running.lines.recv_timeout(self.guest.patience) {
            Ok(line) => {
                let report: CaseReport = serde_json::from_str(&line)
                    .with_context(|| format!("read what vgpu-ops says: {line:?}"))?;
                self.running = Some(running);
                Ok(report)
            }
            Err(RecvTimeoutError::Disconnected) => Ok(failed(running.finish(None)?)),
            Err(RecvTimeoutError::Timeout) => {
                let why = format!("no answer in {:?}", self.guest.patience);
                Ok(failed(running.finish(Some(&why))?))
            }
        }
    }
}

impl Drop for Worker<'_> {
    fn drop(&mut self) {
        if let Some(mut running) = self.running.take() {
            // Closing its stdin ends the process.
            drop(running.stdin);
            // A failure of this wait is ignored.
            let _ = running.child.wait();
        }
    }
}
