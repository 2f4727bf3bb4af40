//! Processes of a scene: they end with it, and all that they started.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process_group};
use vgpu_testbed::programs;

use super::Scene;

/// A process of the scene, with all that it started.
#[derive(Debug)]
pub struct Process {
    child: Child,
    /// Closed at the end: for those that wait for that.
    _stdin: Option<std::process::ChildStdin>,
}

impl Process {
    /// Starts it in a group of its own.
    pub fn start(command: &mut Command) -> Result<Self> {
        let mut child = command
            .process_group(0)
            .spawn()
            .with_context(|| format!("start {}", command.get_program().display()))?;
        let stdin = child.stdin.take();
        Ok(Self { child, _stdin: stdin })
    }

    /// Its id, and its group's.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal to all of it.
    pub fn signal(&self, signal: Signal) {
        if let Some(group) = Pid::from_raw(self.child.id().cast_signed()) {
            // It may have ended.
            let _ = kill_process_group(group, signal);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        let _ = self.child.wait();
    }
}

impl Scene {
    /// Another guest process, which holds a session: it says `ready` when it does.
    pub fn hold_session(&mut self, state: &str) -> Result<()> {
        let mut command = Command::new(programs::launcher()?);
        command.arg("--").arg(programs::standin()?).args(["state", state]).env("VGPU_SYSFS", self.bus());
        self.start_until(&mut command, "ready").context("give another process its session")
    }

    /// Another process, once its first line begins with this word.
    pub fn start_until(&mut self, command: &mut Command, word: &str) -> Result<()> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Process::start(command)?;
        let out = process.child.stdout.take().context("no stdout")?;
        let mut line = String::new();
        BufReader::new(out).read_line(&mut line)?;
        self.processes.push(process);
        if !line.starts_with(word) {
            bail!("{} said {line:?}, not {word}", command.get_program().display());
        }
        Ok(())
    }
}
