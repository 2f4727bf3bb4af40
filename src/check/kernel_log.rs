//! Reads in the kernel's log which system call a seccomp filter ended a process at. Only root may read it, and
//! only kernels with audit write it.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::libc;

/// Device from which the kernel's log is read, a record at a time.
const LOG: &str = "/dev/kmsg";
/// Maximum number of records that are read.
const RECORDS: usize = 20_000;
/// Type of the audit record about a process that a filter ended (`AUDIT_SECCOMP`).
const SECCOMP: &str = "type=1326";
/// Time that may pass between the end of a process and the question: another process may run in between.
const LATER: Duration = Duration::from_secs(10);
/// System calls of x86-64: number and name.
const CALLS: &str = include_str!("system_calls.txt");

/// Returns the system call at which a filter last ended a process with one of these program names, if that
/// process ran for the time `within` until just now.
pub fn filtered_call(names: &[&str], within: Duration) -> Option<String> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    let since = now.saturating_sub(within + LATER);
    let mut log = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(Path::new(LOG)).ok()?;
    let mut record = [0; 8192];
    let mut last = None;
    for _ in 0..RECORDS {
        match log.read(&mut record) {
            Ok(0) => break,
            Ok(bytes) => {
                let text = String::from_utf8_lossy(&record[..bytes]);
                last = call(&text, names, since).or(last);
            }
            // A record that was overwritten in the meantime.
            Err(error) if error.raw_os_error() == Some(libc::EPIPE) => {}
            // The end, for now.
            Err(_) => break,
        }
    }
    last
}

/// Returns the call that a record is about, by name if it has one, unless the record is from before `since`,
/// a time since 1970.
fn call(record: &str, names: &[&str], since: Duration) -> Option<String> {
    let value = |key: &str| {
        let (_, rest) = record.split_once(&format!(" {key}="))?;
        rest.split_whitespace().next().map(|value| value.trim_matches('"'))
    };
    if !record.contains(SECCOMP) || !names.contains(&value("comm")?) || at(record)? < since {
        return None;
    }
    let number = value("syscall")?;
    let named = CALLS.lines().find_map(|line| line.split_once(' ').filter(|(known, _)| *known == number));
    Some(named.map_or_else(|| format!("number {number}"), |(_, name)| name.to_owned()))
}

/// Returns the time of an audit record, `audit(SECONDS.MILLISECONDS:SERIAL)`, since 1970.
fn at(record: &str) -> Option<Duration> {
    let (_, rest) = record.split_once(" audit(")?;
    let (seconds, rest) = rest.split_once('.')?;
    let (milliseconds, _) = rest.split_once(':')?;
    let part = Duration::from_millis(milliseconds.parse::<u16>().ok()?.into());
    Duration::from_secs(seconds.parse().ok()?).checked_add(part)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_call_of_a_record() {
        let record = "5,1,2,-;audit: type=1326 audit(1700.250:3): auid=0 uid=0 pid=712 comm=\"llama-server\" \
                      exe=\"/x\" sig=31 arch=c000003e syscall=41 compat=0 ip=0x1 code=0x80000000\n";
        let of = |record: &str, name: &str| call(record, &[name], Duration::from_millis(1_700_250));
        assert_eq!(of(record, "llama-server").as_deref(), Some("socket"));
        assert_eq!(of(&record.replace("=41", "=9999"), "llama-server").as_deref(), Some("number 9999"));
        assert_eq!(of(&record.replace("1700.250", "1700.249"), "llama-server"), None, "from before");
        assert_eq!(of(record, "ollama"), None);
        assert_eq!(of(&record.replace("=1326", "=1400"), "llama-server"), None);
    }

    proptest! {
        #[test]
        fn no_record_breaks_the_reader(text in ".{0,80}") {
            let _ = call(&format!("{SECCOMP} audit({text}"), &["x"], Duration::ZERO);
            let _ = call(&format!("{SECCOMP} audit(1.2:3): comm=\"x\" {text}"), &["x"], Duration::ZERO);
        }
    }
}
