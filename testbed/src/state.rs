//! The stand-in `state`, a CUDA program that gets into a state and stays there, under the launcher.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::bed::PATIENCE;
use crate::programs;

/// A process of the stand-in in a given state, whose output can be read. It is killed when the value is
/// dropped.
#[derive(Debug)]
pub struct Program {
    child: Child,
    lines: BufReader<ChildStdout>,
    /// Pipe to its stdin; `None` once it is closed.
    stdin: Option<ChildStdin>,
}

impl Program {
    /// Starts the stand-in in the state `state` on the bus at `sysfs`.
    ///
    /// # Errors
    /// Fails if the launcher or the stand-in is not built or cannot be started.
    pub fn start(sysfs: &Path, state: &str) -> Result<Self> {
        let mut child = Command::new(programs::launcher()?)
            .arg(programs::standin()?)
            .args(["state", state])
            .env("VGPU_SYSFS", sysfs)
            .env_remove("CUDA_VISIBLE_DEVICES")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("start the launcher")?;
        let lines = BufReader::new(child.stdout.take().context("no pipe for stdout")?);
        let stdin = child.stdin.take();
        Ok(Self { child, lines, stdin })
    }

    /// Returns its process ID, which is also the session's, since the launcher becomes the program.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the next line of output.
    ///
    /// # Errors
    /// Fails if the process has ended.
    pub fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        ensure!(self.lines.read_line(&mut line)? > 0, "the program ended: {:?}", self.child.wait());
        Ok(line.trim().to_owned())
    }

    /// Waits for `ready N` and returns N, the number of bytes of device memory that the process holds.
    ///
    /// # Errors
    /// Fails if the process has ended or prints another line.
    pub fn ready(&mut self) -> Result<u64> {
        let line = self.line()?;
        let held = line.strip_prefix("ready ").and_then(|held| held.parse().ok());
        held.with_context(|| format!("not `ready N`: {line}"))
    }

    /// Waits for the next round of the state `working`, in which the process has compared all bytes, and
    /// returns its number.
    ///
    /// # Errors
    /// Fails if the process has ended, as it does on a wrong byte, or prints another line.
    pub fn round(&mut self) -> Result<u64> {
        let line = self.line()?;
        let round = line.strip_prefix("round ").and_then(|round| round.parse().ok());
        round.with_context(|| format!("not `round N`: {line}"))
    }

    /// Waits for a round of the state `working` after `round`, and returns its number. This shows that the
    /// process continues, whatever happened to others.
    ///
    /// # Errors
    /// Fails as [`Self::round`] does, and if there is no such round within [`PATIENCE`].
    pub fn beyond(&mut self, round: u64) -> Result<u64> {
        let end = Instant::now() + PATIENCE;
        loop {
            let now = self.round()?;
            if now > round {
                return Ok(now);
            }
            ensure!(Instant::now() < end, "the other program stands still at round {now}");
        }
    }

    /// Sends an empty line, on which the process continues.
    ///
    /// # Errors
    /// Fails if the process has ended.
    pub fn go_on(&mut self) -> Result<()> {
        Ok(self.stdin.as_mut().context("its stdin is closed")?.write_all(b"\n")?)
    }

    /// Lets the process detach and exit, and waits for it.
    ///
    /// # Errors
    /// Fails if the process did not succeed.
    pub fn finish(mut self) -> Result<()> {
        drop(self.stdin.take());
        self.lines.read_to_string(&mut String::new())?;
        let status = self.child.wait()?;
        ensure!(status.success(), "the program ended: {status}");
        Ok(())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // The process may already have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
