//! The owner of a private directory: a process, identified so that neither a reused process id nor another
//! PID namespace on the same file system is mistaken for it.

use std::fs;
use std::io;

/// Identity of a process, as `/proc` of this mount namespace shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Inode number of the process's PID namespace.
    namespace: u64,
    /// Process id as `/proc` shows it.
    pid: u32,
    /// Start time of the process in clock ticks since boot: field 22 of `/proc/PID/stat`.
    started: u64,
}

impl Owner {
    /// Returns the identity of this process, which exec keeps.
    pub fn this() -> io::Result<Self> {
        let stat = Stat::read("self")?;
        Ok(Self { namespace: namespace()?, pid: stat.pid, started: stat.started })
    }

    /// Returns the identity of the parent process, or of process 1 if the parent is not visible.
    pub fn parent() -> io::Result<Self> {
        let pid = Stat::read("self")?.parent.max(1);
        let stat = Stat::read(&pid.to_string())?;
        Ok(Self { namespace: namespace()?, pid, started: stat.started })
    }

    /// Returns the process id as `/proc` shows it, for `/proc/PID` paths.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Returns the part of a directory's name that identifies the owner.
    pub fn label(&self) -> String {
        format!("{}.{}.{}", self.namespace, self.pid, self.started)
    }

    /// Parses a label from [`Self::label`].
    pub fn from_label(label: &str) -> Option<Self> {
        let mut parts = label.split('.');
        let mut number = || parts.next()?.parse().ok();
        let (namespace, pid, started) = (number()?, number()?, number()?);
        let owner = Self { namespace, pid: u32::try_from(pid).ok()?, started };
        // Also refuses what parses but was not written so: signs, leading zeros, more parts.
        (owner.label() == label).then_some(owner)
    }

    /// Returns whether the process has certainly ended. A process in another PID namespace is not visible,
    /// and counts as alive.
    pub fn is_gone(&self) -> bool {
        if namespace().ok() != Some(self.namespace) {
            return false;
        }
        match Stat::read(&self.pid.to_string()) {
            Ok(stat) => stat.started != self.started,
            // ESRCH means that the process ended during the read. Other errors do not show that it has ended.
            Err(error) => {
                error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(nix::libc::ESRCH)
            }
        }
    }
}

/// Returns the inode number of this process's PID namespace.
fn namespace() -> io::Result<u64> {
    let link = fs::read_link("/proc/self/ns/pid")?;
    let text = link.to_str().unwrap_or_default();
    let number = text.strip_prefix("pid:[").and_then(|rest| rest.strip_suffix(']'));
    number
        .and_then(|number| number.parse().ok())
        .ok_or_else(|| io::Error::other("unknown form of PID namespace"))
}

/// Fields of `/proc/PID/stat`.
#[derive(Debug, PartialEq, Eq)]
pub struct Stat {
    /// Process id.
    pub pid: u32,
    /// Process id of the parent.
    pub parent: u32,
    started: u64,
}

impl Stat {
    /// Reads the fields of a process, which is given by its id or as `self`.
    pub fn read(process: &str) -> io::Result<Self> {
        let text = fs::read(format!("/proc/{process}/stat"))?;
        Self::parse(&String::from_utf8_lossy(&text))
            .ok_or_else(|| io::Error::other("unknown form of /proc/PID/stat"))
    }

    /// Parses the text of a `stat` file. The second field is the program's name in parentheses, which may
    /// itself contain parentheses and blanks.
    fn parse(text: &str) -> Option<Self> {
        let (head, rest) = text.rsplit_once(") ")?;
        let pid = head.split_once(" (")?.0.parse().ok()?;
        // Field 3 is the first of the rest.
        let mut fields = rest.split_ascii_whitespace();
        let parent = fields.nth(4 - 3)?.parse().ok()?;
        let started = fields.nth(22 - 4 - 1)?.parse().ok()?;
        Some(Self { pid, parent, started })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn this_process_is_not_gone() {
        let this = Owner::this().unwrap();
        assert_eq!(this.pid(), std::process::id());
        assert!(!this.is_gone());
        assert!(!Owner::parent().unwrap().is_gone());
        assert_eq!(Owner::from_label(&this.label()), Some(this));
    }

    #[test]
    fn a_reused_process_id_is_another_process() {
        let this = Owner::this().unwrap();
        assert!(Owner { started: this.started - 1, ..this }.is_gone());
    }

    #[test]
    fn another_namespace_cannot_be_judged() {
        let this = Owner::this().unwrap();
        assert!(!Owner { namespace: this.namespace + 1, started: 0, ..this }.is_gone());
    }

    #[test]
    fn a_child_that_was_waited_for_is_gone() {
        let mut child =
            std::process::Command::new("/bin/cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let stat = Stat::read(&child.id().to_string()).unwrap();
        assert_eq!((stat.pid, stat.parent), (child.id(), std::process::id()));
        let owner = Owner { pid: child.id(), started: stat.started, ..Owner::this().unwrap() };
        assert!(!owner.is_gone());
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(owner.is_gone());
    }

    #[test]
    fn names_with_parentheses() {
        let tail = "S 7 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4242 9 9";
        let stat = Stat::parse(&format!("12 (a) b (c) {tail}")).unwrap();
        assert_eq!(stat, Stat { pid: 12, parent: 7, started: 4242 });
        assert_eq!(Stat::parse("12 (a) S 7"), None);
    }

    proptest! {
        #[test]
        fn labels_come_back(namespace: u64, pid: u32, started: u64) {
            let owner = Owner { namespace, pid, started };
            prop_assert_eq!(Owner::from_label(&owner.label()), Some(owner));
        }

        #[test]
        fn what_is_no_label_is_none(text in "[0-9.+-]{0,20}|.{0,20}") {
            if let Some(owner) = Owner::from_label(&text) {
                prop_assert_eq!(owner.label(), text);
            }
        }
    }
}
