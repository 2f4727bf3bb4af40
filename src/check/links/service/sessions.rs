//! Determines the device sessions of a server's processes, and whether the devices still have them.
//!
//! A process keeps its lock on a channel, and its descriptor of the window, until it notices the end of its
//! session. After a restart of the device the channel is free there, or the window is another file.

use std::io;
use std::path::Path;
use std::time::Duration;

use vgpu_transport::{PciAddress, PciFunction, scan};

use crate::check::child;
use crate::check::context::CheckContext;
use crate::check::facts::HeldSession;
use crate::check::messages::{Sessions, StepFailure};
use crate::check::steps::{StepReport, Steps};
use crate::ollama::processes::OllamaServer;

/// Time limit for the worker, which also limits its own step.
const LIMIT: Duration = Duration::from_secs(5);
/// Suffix of the link target in `/proc/PID/fd` for a window whose file was removed.
const REMOVED: &str = "/resource2 (deleted)";

/// Returns the sessions of a server's processes, and messages on devices or processes whose sessions are
/// unknown.
pub async fn examine(context: &CheckContext, server: &OllamaServer) -> (Vec<HeldSession>, Vec<String>) {
    let (mut sessions, mut unexamined) = (Vec::new(), Vec::new());
    // Link `pci` may not have been asked for.
    let functions = match &context.functions[..] {
        [] => scan(&context.root).unwrap_or_default(),
        functions => functions.to_vec(),
    };
    for function in &functions {
        match ask(context, function).await {
            Ok(seen) => sessions.extend(judge(&seen, server, function.address)),
            Err(why) => unexamined.push(format!("the sessions of {} are not known: {why}", function.address)),
        }
    }
    for process in server.processes() {
        match removed_windows(Path::new("/proc"), process.pid) {
            Ok(removed) => {
                for function in removed {
                    let held = |session: &HeldSession| {
                        session.process == process.pid && session.function == function
                    };
                    if !sessions.iter().any(held) {
                        sessions.push(HeldSession { process: process.pid, function, alive: false });
                    }
                }
            }
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => unexamined
                .push(format!("the descriptors of process {} may not be seen by this user", process.pid)),
            // It has ended.
            Err(_) => {}
        }
    }
    (sessions, unexamined)
}

async fn ask(context: &CheckContext, function: &PciFunction) -> Result<Sessions, String> {
    let mut command = child::ourselves(None);
    command.args(["sessions", &function.address.to_string()]);
    let outcome = child::run_limited(command, &context.environment, context.time(LIMIT))
        .await
        .map_err(|error| format!("failed to start a process: {error}"))?;
    let steps = Steps::read(&outcome.stdout);
    if let Some(sessions) = steps.succeeded() {
        return Ok(sessions);
    }
    let failure = steps.failed().and_then(StepReport::said::<StepFailure>);
    Err(failure.map(|failure| failure.found).or(outcome.trouble()).unwrap_or_default())
}

/// Returns the sessions of a server's processes on a function.
fn judge(seen: &Sessions, server: &OllamaServer, function: PciAddress) -> Vec<HeldSession> {
    let ours = |process: u32| server.processes().any(|one| one.pid == process);
    let held = seen.locked.iter().filter(|(_, process)| ours(*process));
    held.map(|&(channel, process)| HeldSession { process, function, alive: seen.attached.contains(&channel) })
        .collect()
}

/// Returns the functions whose removed windows a process still has open.
fn removed_windows(proc: &Path, pid: u32) -> io::Result<Vec<PciAddress>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(proc.join(pid.to_string()).join("fd"))? {
        // A descriptor may be closed in the meantime.
        let Ok(target) = std::fs::read_link(entry?.path()) else { continue };
        found.extend(target.to_str().and_then(removed).filter(|function| !found.contains(function)));
    }
    Ok(found)
}

/// Parses the function's address from a link to a window that has been removed.
fn removed(link: &str) -> Option<PciAddress> {
    link.strip_suffix(REMOVED)?.rsplit('/').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ollama::processes::RunningProcess;
    use crate::scratch::Scratch;

    fn process(pid: u32) -> RunningProcess {
        RunningProcess { pid, parent: 1, user: 0, words: Vec::new(), environment: None, mapped: None }
    }

    #[test]
    fn a_lock_without_a_session_is_a_dead_one() {
        let server =
            OllamaServer { process: process(7), runners: vec![process(8), process(9)], listens: None };
        let seen = Sessions { locked: vec![(0, 8), (1, 9), (2, 10)], attached: vec![0, 2] };
        let function = "0000:00:05.0".parse().unwrap();
        let session = |process, alive| HeldSession { process, function, alive };
        assert_eq!(judge(&seen, &server, function), [session(8, true), session(9, false)]);
    }

    #[test]
    fn windows_that_were_removed() {
        let scratch = Scratch::new();
        let folder = scratch.join("8/fd");
        std::fs::create_dir_all(&folder).unwrap();
        for (number, target) in [
            ("3", "/sys/devices/pci0000:00/0000:00:05.0/resource2 (deleted)"),
            ("4", "/sys/devices/pci0000:00/0000:00:05.0/resource2 (deleted)"),
            ("5", "/sys/devices/pci0000:00/0000:00:06.0/resource2"),
            ("6", "/tmp/resource2 (deleted)"),
        ] {
            std::os::unix::fs::symlink(target, folder.join(number)).unwrap();
        }
        let function: PciAddress = "0000:00:05.0".parse().unwrap();
        assert_eq!(removed_windows(scratch.path(), 8).unwrap(), [function]);
        assert_eq!(removed_windows(scratch.path(), 9).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
