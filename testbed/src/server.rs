//! A process of the host that a measurement starts, and that ends when its standard input closes.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdin, Command, Stdio};

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use vgpu_testbed::bed::terminate;

/// A process that ends when its standard input closes.
pub(crate) struct Server {
    child: Child,
    _stdin: ChildStdin,
}

impl Server {
    /// Starts a program and waits until it prints `ready`.
    pub(crate) fn start(command: &mut Command) -> Result<Self> {
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("start a server")?;
        let stdin = child.stdin.take().context("no stdin")?;
        let mut lines = BufReader::new(child.stdout.take().context("no stdout")?).lines();
        let ready = lines.by_ref().map_while(Result::ok).any(|line| line == "ready");
        if !ready {
            bail!("a server did not start: {}", child.wait()?);
        }
        Ok(Self { child, _stdin: stdin })
    }

    /// Returns whether it has not ended.
    pub(crate) fn is_running(&self) -> Result<bool> {
        let pid = Pid::from_raw(self.child.id().cast_signed()).context("no process")?;
        // It is this process's child, and left for `wait` where it has ended.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        Ok(waitid(WaitId::Pid(pid), options)?.is_none())
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        let pid = Pid::from_raw(self.child.id().cast_signed()).context("no process")?;
        Ok(kill_process(pid, signal)?)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The process may have ended.
        if terminate(&mut self.child).is_err() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
