//! The owner of a channel, as it describes itself in the channel's submit page.
//!
//! A channel's lock becomes free when its owner dies, but not only then: a program that closes all
//! descriptors, as daemons do when they start, drops the lock and lives on with its session. So a process
//! that finds the lock free checks whether the owner still runs. The process id alone would not do, because
//! ids are reused and belong to a namespace.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// What identifies a process on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    /// Process id in its own namespace.
    pub(crate) process: u32,
    /// Inode number of that namespace.
    pub(crate) namespace: u32,
    /// Start time in clock ticks since boot.
    pub(crate) started: u64,
    /// Inode number of the program that runs, or 0. It changes when the process executes another program,
    /// whose memory has no session any more.
    pub(crate) program: u64,
}

/// Directory of a process, by its number or as `self`.
fn directory(process: &str) -> PathBuf {
    ["/proc", process].iter().collect()
}

/// Returns the inode number of a process's PID namespace, or `None` if this process may not read it. The
/// kernel shows it only to the process's own user and to root.
fn namespace(process: &str) -> Option<u32> {
    Some(fs::metadata(directory(process).join("ns/pid")).ok()?.ino() as u32)
}

/// Returns the inode number of the program that a process runs, or `None` if this process may not read it.
fn program(process: &str) -> Option<u64> {
    Some(fs::metadata(directory(process).join("exe")).ok()?.ino())
}

/// Returns the start time of a process in clock ticks since boot, or `None` if it does not run.
fn started(process: &str) -> Option<u64> {
    parse_started(&fs::read_to_string(directory(process).join("stat")).ok()?)
}

/// Reads the start time of a process that runs from its `stat`. The name before the closing parenthesis may
/// contain anything.
fn parse_started(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?;
    // Fields are counted from 1. The state is the third, the number of threads the twentieth.
    let threads: u64 = fields.nth(20 - 4)?.parse().ok()?;
    // A zombie with more than one thread has lost its first thread only, and lives.
    let dead = matches!(state, "Z" | "X" | "x") && threads <= 1;
    (!dead).then(|| fields.nth(22 - 21)?.parse().ok()).flatten()
}

/// Returns the number that a process has in its own namespace.
fn number_within(process: &str) -> Option<u32> {
    let status = fs::read_to_string(directory(process).join("status")).ok()?;
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    numbers.split_ascii_whitespace().last()?.parse().ok()
}

impl Owner {
    /// Describes this process. Returns `None` if `/proc` does not tell, as in a program without it.
    pub(crate) fn this() -> Option<Self> {
        Some(Self {
            process: std::process::id(),
            namespace: namespace("self")?,
            started: started("self")?,
            program: program("self").unwrap_or(0),
        })
    }

    /// Returns whether the owner lives, as far as `/proc` shows. Returns false for this process, which knows
    /// by itself which channels it owns; those that it owned before an `exec` are unused.
    pub(crate) fn is_alive(&self) -> bool {
        if namespace("self") == Some(self.namespace) {
            return self.process != std::process::id() && self.is(&self.process.to_string());
        }
        // Processes of inner namespaces are visible to those of an outer one.
        let within = |process: &str| {
            namespace(process) == Some(self.namespace) && number_within(process) == Some(self.process)
        };
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        let numbers = processes.filter_map(|entry| entry.file_name().into_string().ok());
        let mut numbers = numbers.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
        numbers.any(|process| within(&process) && self.is(&process))
    }

    /// Returns whether the process with this id is the owner, and runs.
    fn is(&self, process: &str) -> bool {
        let same = program(process).is_none_or(|program| self.program == 0 || program == self.program);
        started(process) == Some(self.started) && same
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    /// Describes a child of this process.
    fn of(child: &std::process::Child) -> Owner {
        let name = child.id().to_string();
        Owner {
            process: child.id(),
            namespace: namespace("self").unwrap(),
            started: started(&name).unwrap(),
            program: program(&name).unwrap(),
        }
    }

    #[test]
    fn a_process_is_told_from_its_successors() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let owner = of(&child);
        assert!(owner.is_alive());
        assert!(!Owner { started: owner.started + 1, ..owner }.is_alive(), "another one of this number");
        assert!(!Owner { program: owner.program + 1, ..owner }.is_alive(), "it has executed a program");
        assert!(Owner { program: 0, ..owner }.is_alive());
        assert!(!Owner { namespace: owner.namespace ^ 1, ..owner }.is_alive());
        child.kill().unwrap();
        // Dead, but nobody has waited for it yet.
        while started(&child.id().to_string()).is_some() {
            std::thread::yield_now();
        }
        assert!(!owner.is_alive() && directory(&child.id().to_string()).exists());
        child.wait().unwrap();
        assert!(!owner.is_alive());
        assert!(Owner::this().is_some_and(|own| !own.is_alive() && own.process == std::process::id()));
    }

    #[test]
    fn a_stat_is_read_whatever_the_name_is() {
        let stat = |state, threads| {
            format!(
                "7 (a) Z 1 ) {state} 1 7 7 0 -1 4194560 90 0 0 0 0 0 0 0 20 0 {threads} 0 812 2777088 90\n"
            )
        };
        assert_eq!(parse_started(&stat("S", 1)), Some(812));
        assert_eq!(parse_started(&stat("Z", 1)), None);
        assert_eq!(parse_started(&stat("Z", 3)), Some(812), "only its first thread has ended");
        assert_eq!(parse_started("7 (a) S 1"), None);
        assert_eq!(parse_started(""), None);
    }
}
