//! The workers of a process that has died. They end by themselves within two seconds, once they notice that
//! their socket is closed; whoever takes the dead process's place kills them, because they still write to the
//! memory that it takes over.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use vgpu_vfio_user::record::{RecordedProcess, start_of};

/// Maximum time for which the deaths are waited for. A process that the kernel or a driver does not let go
/// keeps its memory charged meanwhile.
const DEATHS_MOST: Duration = Duration::from_secs(10);

/// Kills the processes that still live, and waits for their deaths. A process that has got the number of one
/// of them is left alone. Returns how many were killed.
pub(crate) fn end(processes: &[RecordedProcess]) -> usize {
    let orphans: Vec<OwnedFd> = processes.iter().filter_map(opened).collect();
    for orphan in &orphans {
        // It may have ended meanwhile.
        let _ = pidfd_send_signal(orphan, Signal::KILL);
    }
    let end = Instant::now() + DEATHS_MOST;
    for orphan in &orphans {
        let left = end.saturating_duration_since(Instant::now());
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        if poll(&mut [PollFd::new(orphan, PollFlags::IN)], Some(&left)) == Ok(0) {
            tracing::warn!("a worker of the process before this one does not end within {DEATHS_MOST:?}");
            break;
        }
    }
    orphans.len()
}

/// Opens a process, if it is still the one that was recorded.
fn opened(process: &RecordedProcess) -> Option<OwnedFd> {
    let pid = Pid::from_raw(process.pid.cast_signed())?;
    let opened = match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(opened) => opened,
        Err(Errno::SRCH) => return None,
        Err(error) => {
            // Without it another process might be killed.
            tracing::warn!(
                pid = process.pid,
                "a worker of the process before this one is left to end: {error}"
            );
            return None;
        }
    };
    // The number is this process's from here on, so that its start time tells whether it was before.
    (start_of(process.pid).ok()?? == process.start).then_some(opened)
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::{Child, Command, Stdio};

    use super::*;

    fn sleeper() -> (Child, RecordedProcess) {
        let child = Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().unwrap();
        let pid = child.id();
        (child, RecordedProcess { pid, start: start_of(pid).unwrap().unwrap() })
    }

    #[test]
    fn orphans_are_killed_and_no_others() {
        let (mut one, mut two, mut other) = (sleeper(), sleeper(), sleeper());
        let reused = RecordedProcess { start: other.1.start + 1, ..other.1 };
        let absent = RecordedProcess { pid: i32::MAX.cast_unsigned(), start: 1 };
        assert_eq!(end(&[one.1, reused, absent, two.1]), 2);
        for child in [&mut one.0, &mut two.0] {
            assert_eq!(child.wait().unwrap().signal(), Some(9));
        }
        assert!(other.0.try_wait().unwrap().is_none(), "its number was another's");
        other.0.kill().unwrap();
        other.0.wait().unwrap();
    }
}
