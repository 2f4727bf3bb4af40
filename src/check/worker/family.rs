//! Finds and ends the descendants of this process. It is their subreaper: a process whose parent ends becomes
//! its child, so that all can be found, even those that have left the process group.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::prctl::set_child_subreaper;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::inject::owner::Stat;
use crate::ollama::sockets;

/// Interval between scans.
const TICK: Duration = Duration::from_millis(1);

/// Makes this process the parent of every orphan among its descendants. A filter may refuse that: orphans are
/// then neither found nor ended.
pub fn adopt() -> Result<(), Errno> {
    set_child_subreaper(true)
}

/// Kills all descendants, including those that they start in the meantime. Returns the ids of those that do
/// not end within `patience`, which happens while they are blocked in the kernel.
pub fn end(patience: Duration) -> Vec<u32> {
    let deadline = Instant::now() + patience;
    loop {
        let left = descendants();
        for pid in &left {
            // The process may have ended in the meantime.
            let _ = kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL);
        }
        // Without /proc no descendant is found. The existing children are then waited for.
        if reap() && left.is_empty() || Instant::now() > deadline {
            return left;
        }
        thread::sleep(TICK);
    }
}

/// Returns the addresses at which descendants listen.
pub fn listening() -> Vec<SocketAddr> {
    let proc = Path::new("/proc");
    let family = descendants();
    let open: Vec<u64> =
        family.iter().filter_map(|pid| sockets::sockets(proc, *pid).ok()).flatten().collect();
    // A descendant may have a network namespace of its own; most have this process's.
    let all = sockets::listeners(proc, "self").unwrap_or_default();
    all.into_iter().filter(|socket| open.contains(&socket.inode)).map(|socket| socket.address).collect()
}

/// Reaps the children that have ended. Returns whether none is left.
pub fn reap() -> bool {
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) => return false,
            Err(Errno::ECHILD) => return true,
            Ok(_) | Err(_) => {}
        }
    }
}

/// Returns the ids of all descendants of this process, including zombies.
pub fn descendants() -> Vec<u32> {
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
