//! The stand-in `state`, a CUDA program that gets into a state and stays there, under the launcher.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::bed::PATIENCE;
use crate::programs;

/// One process of it, whose lines can be read. It is killed when this value is dropped.
#[derive(Debug)]
pub struct Program {
    child: Child,
    lines: BufReader<ChildStdout>,
    /// `None` once it is closed.
    stdin: Option<ChildStdin>,
}

impl Program {
    /// Starts it on the bus at `sysfs`.
    ///
    /// # Errors
    /// The launcher or the stand-in is not built, or cannot be started.
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

    /// The launcher becomes the program, so the child's pid is the session's.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for its next line.
    ///
    /// # Errors
    /// It has ended.
    pub fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        ensure!(self.lines.read_line(&mut line)? > 0, "the program ended: {:?}", self.child.wait());
        Ok(line.trim().to_owned())
    }

    /// Waits for `ready N` and returns N, the bytes of device memory that it holds.
    ///
    /// # Errors
    /// It has ended, or says something else.
    pub fn ready(&mut self) -> Result<u64> {
        let line = self.line()?;
        let held = line.strip_prefix("ready ").and_then(|held| held.parse().ok());
        held.with_context(|| format!("not `ready N`: {line}"))
    }

    /// Waits for the next round of the state `working`, in which it has compared all bytes, and returns its
    /// number.
    ///
    /// # Errors
    /// It has ended, as it does when a byte is wrong, or says something else.
    pub fn round(&mut self) -> Result<u64> {
        let line = self.line()?;
        let round = line.strip_prefix("round ").and_then(|round| round.parse().ok());
        round.with_context(|| format!("not `round N`: {line}"))
    }

    /// Waits for a round of the state `working` beyond `round`, and returns its number: it goes on, whatever
    /// has happened to other programs.
    ///
    /// # Errors
    /// As [`Self::round`], and if there is none for [`PATIENCE`].
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

    /// Has it go on: an empty line.
    ///
    /// # Errors
    /// It has ended.
    pub fn go_on(&mut self) -> Result<()> {
        Ok(self.stdin.as_mut().context("its stdin is closed")?.write_all(b"\n")?)
    }

    /// Lets it end by itself, and detach.
    ///
    /// # Errors
    /// It has not succeeded.
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
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
