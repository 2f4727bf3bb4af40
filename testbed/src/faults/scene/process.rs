//! Processes of a scene, which are killed with their descendants when it ends.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process_group};

/// Limit of the wait for a process's first line.
const LIMIT: Duration = Duration::from_mins(2);

/// A process of the scene with all of its descendants.
#[derive(Debug)]
pub struct Process {
    child: Child,
    /// Pipe to the process's stdin, whose closing ends some programs.
    _stdin: Option<std::process::ChildStdin>,
}

impl Process {
    /// Starts the process in a process group of its own.
    pub fn start(command: &mut Command) -> Result<Self> {
        let mut child = command
            .process_group(0)
            .spawn()
            .with_context(|| format!("start {}", command.get_program().display()))?;
        let stdin = child.stdin.take();
        Ok(Self { child, _stdin: stdin })
    }

    /// Returns the ID of the process, which is also that of its group.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the first line of its output. Stdout must be a pipe, and later output is not read.
    pub fn first_line(&mut self) -> Result<String> {
        let out = self.child.stdout.take().context("no stdout")?;
        // A process that never prints must not delay the other scenes.
        let limit = Timespec { tv_sec: LIMIT.as_secs().cast_signed(), tv_nsec: 0 };
        if poll(&mut [PollFd::new(&out, PollFlags::IN)], Some(&limit))? == 0 {
            bail!("it has said nothing for {} s", LIMIT.as_secs());
        }
        let mut line = String::new();
        BufReader::new(out).read_line(&mut line)?;
        Ok(line)
    }

    /// Returns its stdout and stderr if they are pipes.
    pub fn output(&mut self) -> (Option<ChildStdout>, Option<ChildStderr>) {
        (self.child.stdout.take(), self.child.stderr.take())
    }

    /// Returns the exit status, or `None` while the process runs.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// Sends a signal to the process group.
    pub fn signal(&self, signal: Signal) {
        if let Some(group) = Pid::from_raw(self.child.id().cast_signed()) {
            // The group may already have ended.
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
