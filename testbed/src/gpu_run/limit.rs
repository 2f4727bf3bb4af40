//! A limit to the time of a process: it is killed when it has not ended by then.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// Kills the process when `limit` has passed and it has not ended.
pub fn watch(pid: u32, limit: Duration) -> Result<()> {
    let pid = Pid::from_raw(pid.cast_signed()).context("no process")?;
    let process = pidfd_open(pid, PidfdFlags::empty()).context("watch a process")?;
    let limit = Timespec::try_from(limit).context("wait so long")?;
    std::thread::spawn(move || {
        // Readable when the process has ended. An error is no reason to let it go on.
        if !matches!(poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&limit)), Ok(1)) {
            // It may just have ended.
            let _ = pidfd_send_signal(&process, Signal::KILL);
        }
    });
    Ok(())
}

/// Runs a command within the limit and returns what it printed on stdout. `well`: the exit code must be 0.
pub fn run(command: &mut Command, limit: Duration, well: bool) -> Result<Vec<u8>> {
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let child: Child = child.with_context(|| format!("start {}", command.get_program().display()))?;
    watch(child.id(), limit)?;
    let output = child.wait_with_output().context("wait for a program")?;
    let killed = output.status.code().is_none();
    if killed || (well && !output.status.success()) {
        let errors = String::from_utf8_lossy(&output.stderr);
        let last = errors.trim().lines().last().unwrap_or_default();
        bail!("{}: {} (its limit is {limit:?}): {last}", command.get_program().display(), output.status);
    }
    Ok(output.stdout)
}
