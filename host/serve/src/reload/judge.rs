//! The judgement of a program that is to take over: it is started as a child with the arguments of this one,
//! and reads the state without taking anything. A program that cannot judge is none that can take over.

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use tokio::process::Command;

use crate::reload::saved::STATE_VERSION;

/// Time that a program may take for its judgement, however busy the host is. Accesses of the VM to registers
/// wait meanwhile, and QEMU waits for 5 s at least.
const JUDGEMENT_MOST: Duration = Duration::from_secs(3);

/// Returns what a program prints that can take over.
pub(crate) fn consent() -> String {
    format!("takes over state version {STATE_VERSION}")
}

/// Asks `program`, started with these arguments, whether it can take over `state`.
pub(crate) fn judge(program: &Path, arguments: &[OsString], state: &File) -> Result<()> {
    let shown = program.display();
    let mut judge = Command::new(program);
    // The child opens the memory file of its parent, so that no descriptor is inherited.
    let path = format!("/proc/{}/fd/{}", std::process::id(), state.as_raw_fd());
    judge.args(arguments).arg(format!("--judge={path}")).stdin(Stdio::null()).kill_on_drop(true);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(async { tokio::time::timeout(JUDGEMENT_MOST, judge.output()).await });
    let Ok(ended) = ended else {
        bail!("{shown} cannot take over: it has not judged within {JUDGEMENT_MOST:?}");
    };
    let ended = ended.with_context(|| format!("start {shown}, which is to take over"))?;
    let (said, errors) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    if ended.status.success() && said.lines().last() == Some(&consent()) {
        return Ok(());
    }
    // An error is the last line. Lines of the log may come before.
    let words = errors.lines().rfind(|line| !line.is_empty()).unwrap_or("it says nothing");
    let words = words.strip_prefix("vgpu-device: ").unwrap_or(words);
    bail!("{shown} cannot take over ({}): {words}", ended.status)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Judges by a shell script.
    fn by(script: &str) -> Result<()> {
        let state = tempfile::tempfile().unwrap();
        judge(Path::new("/bin/sh"), &["-c".into(), script.into(), "judge".into()], &state)
    }

    #[test]
    fn only_a_program_that_says_so_takes_over() {
        let (can, cannot) = (consent(), "echo 'vgpu-device: the state is odd' >&2");
        by(&format!("echo '{can}'")).unwrap();
        for (script, why) in [
            (format!("echo '{can}'; {cannot}; exit 1"), "the state is odd"),
            (cannot.to_owned(), "the state is odd"),
            ("exit 0".to_owned(), "it says nothing"),
            (format!("echo '{can}'; kill -SEGV $$"), "signal: 11"),
            ("case $1 in --judge=/proc/*/fd/*) echo as asked >&2;; esac".to_owned(), "as asked"),
        ] {
            let error = by(&script).unwrap_err().to_string();
            assert!(error.contains(why) && error.contains("cannot take over"), "{script}: {error}");
        }
        let state = tempfile::tempfile().unwrap();
        let error = judge(Path::new("/does/not/exist"), &[], &state).unwrap_err();
        assert!(format!("{error:#}").contains("/does/not/exist"), "{error:#}");
    }
}
