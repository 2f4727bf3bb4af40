//! Reads in the kernel's log which system call a seccomp filter ended a process at. Only root may read it, and
//! only kernels with audit write it.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::libc;

/// Device from which the kernel's log is read, a record at a time.
const LOG: &str = "/dev/kmsg";
/// Maximum number of records that are read.
const RECORDS: usize = 20_000;
/// Type of the audit record about a process that a filter ended (`AUDIT_SECCOMP`).
const SECCOMP: &str = "type=1326";
/// System calls of x86-64: number and name.
const CALLS: &str = include_str!("system_calls.txt");

/// Returns the system call at which a filter last ended a process with one of these program names.
pub fn filtered_call(names: &[&str]) -> Option<String> {
    let mut log = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(Path::new(LOG)).ok()?;
    let mut record = [0; 8192];
    let mut last = None;
    for _ in 0..RECORDS {
        match log.read(&mut record) {
            Ok(0) => break,
            Ok(bytes) => {
                let text = String::from_utf8_lossy(&record[..bytes]);
                last = call(&text, names).or(last);
            }
            // A record that was overwritten in the meantime.
            Err(error) if error.raw_os_error() == Some(libc::EPIPE) => {}
            // The end, for now.
            Err(_) => break,
        }
    }
    last
}

/// Returns the call that a record is about, by name if it has one.
fn call(record: &str, names: &[&str]) -> Option<String> {
    let value = |key: &str| {
        let (_, rest) = record.split_once(&format!(" {key}="))?;
        rest.split_whitespace().next().map(|value| value.trim_matches('"'))
    };
    if !record.contains(SECCOMP) || !names.contains(&value("comm")?) {
        return None;
    }
    let number = value("syscall")?;
    let named = CALLS.lines().find_map(|line| line.split_once(' ').filter(|(known, _)| *known == number));
    Some(named.map_or_else(|| format!("number {number}"), |(_, name)| name.to_owned()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_call_of_a_record() {
        let record = "5,1,2,-;audit: type=1326 audit(1.2:3): auid=0 uid=0 pid=712 comm=\"llama-server\" \
                      exe=\"/x\" sig=31 arch=c000003e syscall=41 compat=0 ip=0x1 code=0x80000000\n";
        assert_eq!(call(record, &["llama-server"]).as_deref(), Some("socket"));
        assert_eq!(call(&record.replace("=41", "=9999"), &["llama-server"]).as_deref(), Some("number 9999"));
        assert_eq!(call(record, &["ollama"]), None);
        assert_eq!(call("type=1400 comm=\"llama-server\" syscall=41", &["llama-server"]), None);
    }

    proptest! {
        #[test]
        fn no_record_breaks_the_reader(text in ".{0,80}") {
            let _ = call(&format!("{SECCOMP} comm=\"x\" {text}"), &["x"]);
        }
    }
}
