//! The descendants of this process, which is their subreaper: whoever loses its parent becomes its child. So
//! all of them can be found and ended, even those that have left the process group.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::inject::owner::Stat;

/// Interval between scans.
const TICK: Duration = Duration::from_millis(1);

/// Ends all of them, and those that they start meanwhile. Returns the ids of those that do not end within
/// `patience`: one that the kernel is busy with ends later.
pub fn end(patience: Duration) -> Vec<u32> {
    let deadline = Instant::now() + patience;
    loop {
        let left = descendants();
        for pid in &left {
            // It may have ended meanwhile.
            let _ = kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL);
        }
        // Without /proc nobody is found: then those are waited for that are children already.
        if reap() && left.is_empty() || Instant::now() > deadline {
            return left;
        }
        thread::sleep(TICK);
    }
}

/// Reaps the children that have ended. Whether there is none any more.
fn reap() -> bool {
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) => return false,
            Err(Errno::ECHILD) => return true,
            Ok(_) | Err(_) => {}
        }
    }
}

/// Ids of all processes that come of this one, zombies too.
fn descendants() -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for name in entries.map(|entry| entry.file_name()) {
        let stat = name.to_str().filter(|name| name.starts_with(|c: char| c.is_ascii_digit()));
        if let Some(Ok(stat)) = stat.map(Stat::read) {
            children.entry(stat.parent).or_default().push(stat.pid);
        }
    }
    let mut found = Vec::new();
    let mut next = vec![std::process::id()];
    while let Some(pid) = next.pop() {
        let of = children.remove(&pid).unwrap_or_default();
        found.extend(&of);
        next.extend(of);
    }
    found
}
