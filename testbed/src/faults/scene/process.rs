//! Processes of a scene, which are killed with their descendants when it ends.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

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
        // A script may have started the program in a session of its own, out of the process group.
        let parents = parents();
        let mut family = vec![self.child.id()];
        let mut seen = 0;
        while let Some(&process) = family.get(seen) {
            family.extend(parents.iter().filter(|(_, parent)| *parent == process).map(|(child, _)| child));
            seen += 1;
        }
        self.signal(Signal::KILL);
        for pid in family.iter().skip(1).filter_map(|&pid| Pid::from_raw(pid.cast_signed())) {
            // It may have ended with the group.
            let _ = kill_process(pid, Signal::KILL);
        }
        let _ = self.child.wait();
    }
}

/// Returns the state and the parent of a process, if it has not been reaped.
fn state(process: u32) -> Option<(char, u32)> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name before it may have spaces and parentheses.
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut words = rest.split(' ');
    Some((words.next()?.chars().next()?, words.next()?.parse().ok()?))
}

/// Returns the processes of this machine with their parents.
fn parents() -> Vec<(u32, u32)> {
    let names = fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.file_name());
    let ids = names.filter_map(|name| name.to_str()?.parse().ok());
    ids.filter_map(|process| Some((process, state(process)?.1))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_of_its_own_ends_too() {
        let mut command = Command::new("sh");
        command.args(["-c", "exec setsid --wait sh -c 'echo $$; exec sleep 1000'"]);
        command.stdout(std::process::Stdio::piped());
        let mut process = Process::start(&mut command).unwrap();
        let pid: u32 = process.first_line().unwrap().trim().parse().unwrap();
        drop(process);
        // It ends a moment after the signal, and may be a zombie until then.
        let end = std::time::Instant::now() + LIMIT;
        while state(pid).is_some_and(|(state, _)| !matches!(state, 'Z' | 'X')) {
            assert!(std::time::Instant::now() < end, "it runs on");
            std::thread::yield_now();
        }
    }
}
