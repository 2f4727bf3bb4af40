//! Time limits of a stage and of the processes that it starts, which are killed at the end. A stage that
//! hangs takes no time from other stages.

use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// Number of final stderr lines of a failed program that are reported.
const STDERR_LINES: usize = 20;

/// Time limits of a stage.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Limit of a single program.
    program: Duration,
    /// End of the stage's own time.
    end: Instant,
}

impl Limits {
    /// Creates the limits of a stage that starts now.
    pub fn new(program: Duration, stage: Duration) -> Self {
        Self { program, end: Instant::now() + stage }
    }

    /// Returns the limit of a program that starts now, or an error if the stage's time is over.
    pub fn left(self) -> Result<Duration> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            bail!("the stage's time is over (--budget, --step-limit)");
        }
        Ok(left.min(self.program))
    }
}

/// Runs work that cannot be interrupted on a thread of its own. Returns `None` after `limit`; the thread then
/// keeps running until this process ends.
pub fn within<T: Send + 'static>(limit: Duration, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (done, answer) = mpsc::channel();
    std::thread::spawn(move || {
        // The receiver may have stopped waiting.
        let _ = done.send(work());
    });
    answer.recv_timeout(limit).ok()
}

/// Kills the process unless it ends within `limit`.
pub fn watch(pid: u32, limit: Duration) -> Result<()> {
    let pid = Pid::from_raw(pid.cast_signed()).context("no process")?;
    let process = pidfd_open(pid, PidfdFlags::empty()).context("watch a process")?;
    let limit = Timespec::try_from(limit).context("wait so long")?;
    std::thread::spawn(move || {
        // The pidfd becomes readable when the process has ended. An error must not let the process continue.
        if !matches!(poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&limit)), Ok(1)) {
            // The process may just have ended.
            let _ = pidfd_send_signal(&process, Signal::KILL);
        }
    });
    Ok(())
}

/// Runs a command within the limits and returns its stdout. With `well`, its exit code must be 0.
pub fn run_limited(command: &mut Command, limits: Limits, well: bool) -> Result<Vec<u8>> {
    let limit = limits.left()?;
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let child: Child = child.with_context(|| format!("start {}", command.get_program().display()))?;
    watch(child.id(), limit)?;
    let output = child.wait_with_output().context("wait for a program")?;
    let killed = output.status.code().is_none();
    if killed || (well && !output.status.success()) {
        let errors = last_lines(&output.stderr, STDERR_LINES).join("\n");
        bail!("{}: {} (its limit is {limit:.1?}): {errors}", command.get_program().display(), output.status);
    }
    Ok(output.stdout)
}

/// Returns the last lines of a text, at most `most`.
pub fn last_lines(text: &[u8], most: usize) -> Vec<String> {
    let text = String::from_utf8_lossy(text);
    let lines: Vec<&str> = text.trim_end().lines().collect();
    lines[lines.len().saturating_sub(most)..].iter().map(|&line| line.to_owned()).collect()
}
