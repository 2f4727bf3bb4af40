//! The judgement of a program that is to take over. It is started as a child with the arguments of this one
//! while the device still serves, so that the VM's accesses do not wait for its start. Then it is told of the
//! state, and reads that without taking anything. A program that cannot judge is none that can take over.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use rustix::process::Pid;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, Command};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;
use vgpu_device::RaisedPriority;

use crate::reload::saved::STATE_VERSION;

/// Time that a program may take until it is ready to judge, however busy the host is. Nobody waits for it.
const START_MOST: Duration = Duration::from_secs(10);
/// Time that a program may take for its judgement. Accesses of the VM to registers wait meanwhile, and QEMU
/// waits for 5 s at least.
const JUDGEMENT_MOST: Duration = Duration::from_secs(3);

/// What a program prints that is ready to judge.
const READY: &str = "ready to judge";

/// Returns what a program prints that can take over.
fn consent() -> String {
    format!("takes over state version {STATE_VERSION}")
}

/// Judges in the child: waits for the path of the state, and passes the file to `check`. Prints that this
/// program can take over unless that fails.
pub(crate) fn judge_state(check: impl FnOnce(File) -> Result<()>) -> Result<()> {
    let say = |words: &str| writeln!(io::stdout(), "{words}");
    say(READY)?;
    let mut path = String::new();
    io::stdin().lock().read_line(&mut path).context("read the path of the state")?;
    let path = path.trim_end_matches('\n');
    if path.is_empty() {
        bail!("there is no state to judge");
    }
    check(File::open(path).with_context(|| format!("open {path}"))?)?;
    Ok(say(&consent())?)
}

/// A program that is to judge. It is killed with this value.
pub(crate) struct Judge {
    runtime: Runtime,
    child: Child,
    program: PathBuf,
}

impl Judge {
    /// Starts `program` with these arguments, and waits until it is ready.
    pub(crate) fn start(program: &Path, arguments: &[OsString]) -> Result<Self> {
        let shown = program.display();
        let runtime = Builder::new_current_thread().enable_all().build().context("prepare to wait")?;
        let mut command = Command::new(program);
        command.args(arguments).arg("--judge");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = runtime
            .block_on(async { command.spawn() })
            .with_context(|| format!("start {shown}, which is to take over"))?;
        let mut judge = Self { runtime, child, program: program.to_owned() };
        let ready = async { timeout(START_MOST, is_ready(&mut judge.child)).await };
        match judge.runtime.block_on(ready) {
            Ok(true) => Ok(judge),
            // It has ended, or is not the program that was expected.
            Ok(false) => Err(judge.end().map_or_else(|error| error, |ended| judge.refusal(&ended))),
            Err(_) => bail!("{shown} cannot take over: it was not ready to judge within {START_MOST:?}"),
        }
    }

    /// Gives the program the priority of the thread that is to wait for its judgement.
    pub(crate) fn hurry(&self, priority: Option<&RaisedPriority>) {
        let process = self.child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        if let (Some(priority), Some(process)) = (priority, process) {
            priority.lend(process);
        }
    }

    /// Asks the program whether it can take over `state`.
    pub(crate) fn judge(&mut self, state: &File) -> Result<()> {
        // The child opens the memory file of its parent, so that no descriptor is inherited.
        let path = format!("/proc/{}/fd/{}\n", std::process::id(), state.as_raw_fd());
        if let Some(stdin) = &mut self.child.stdin {
            // A program that has ended since says why.
            let _ = self.runtime.block_on(stdin.write_all(path.as_bytes()));
        }
        let ended = self.end()?;
        let said = String::from_utf8_lossy(&ended.stdout);
        let can = ended.status.success() && said.lines().last() == Some(&consent());
        if can { Ok(()) } else { Err(self.refusal(&ended)) }
    }

    /// Waits until the program has ended, without more input.
    fn end(&mut self) -> Result<Output> {
        let shown = self.program.display();
        let child = &mut self.child;
        drop(child.stdin.take());
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let ending = async { tokio::try_join!(child.wait(), read_all(stdout), read_all(stderr)) };
        let Ok(ended) = self.runtime.block_on(async { timeout(JUDGEMENT_MOST, ending).await }) else {
            bail!("{shown} cannot take over: it has not judged within {JUDGEMENT_MOST:?}");
        };
        let waits = || format!("wait for {shown}, which is to take over");
        let (status, stdout, stderr) = ended.with_context(waits)?;
        Ok(Output { status, stdout, stderr })
    }

    /// Returns why a program that has ended cannot take over.
    fn refusal(&self, ended: &Output) -> anyhow::Error {
        let errors = String::from_utf8_lossy(&ended.stderr);
        // An error is the last line. Lines of the log may come before.
        let words = errors.lines().rfind(|line| !line.is_empty()).unwrap_or("it says nothing");
        let words = words.strip_prefix("vgpu-device: ").unwrap_or(words);
        anyhow!("{} cannot take over ({}): {words}", self.program.display(), ended.status)
    }
}

/// A program that was not asked ends, too, and leaves nothing.
impl Drop for Judge {
    fn drop(&mut self) {
        // One that has ended cannot be killed, and was waited for.
        if self.child.start_kill().is_ok() {
            let _ = self.runtime.block_on(async { timeout(JUDGEMENT_MOST, self.child.wait()).await });
        }
    }
}

/// Waits until a program says that it is ready. Returns false if it says anything else, or ends.
async fn is_ready(child: &mut Child) -> bool {
    let Some(stdout) = &mut child.stdout else { return false };
    let mut said = [0; READY.len() + 1];
    let read = stdout.read_exact(&mut said).await;
    read.is_ok() && said.strip_suffix(b"\n") == Some(READY.as_bytes())
}

/// Reads what is left of a program's output.
async fn read_all(output: Option<impl AsyncRead + Unpin>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(mut output) = output {
        output.read_to_end(&mut bytes).await?;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Judges by a shell script.
    fn by(script: &str) -> Result<()> {
        let state = tempfile::tempfile().unwrap();
        let mut judge = Judge::start(Path::new("/bin/sh"), &["-c".into(), script.into(), "judge".into()])?;
        judge.judge(&state)
    }

    #[test]
    fn only_a_program_that_says_so_takes_over() {
        let (can, cannot) = (consent(), "echo 'vgpu-device: the state is odd' >&2");
        let ready = format!("echo '{READY}'; read state");
        by(&format!("{ready}; echo '{can}'")).unwrap();
        for (script, why) in [
            (format!("{ready}; echo '{can}'; {cannot}; exit 1"), "the state is odd"),
            (format!("{ready}; {cannot}"), "the state is odd"),
            (format!("echo '{can}'"), "it says nothing"),
            (format!("{cannot}; exit 1"), "the state is odd"),
            ("exit 0".to_owned(), "it says nothing"),
            (format!("{ready}; echo '{can}'; kill -SEGV $$"), "signal: 11"),
            (format!("{ready}; case $1$state in --judge/proc/*/fd/*) echo as asked >&2;; esac"), "as asked"),
            // The word comes too late, when it has ended.
            (format!("echo '{READY}'; {cannot}; exit 1"), "the state is odd"),
        ] {
            let error = by(&script).unwrap_err().to_string();
            assert!(error.contains(why) && error.contains("cannot take over"), "{script}: {error}");
        }
        let error = Judge::start(Path::new("/does/not/exist"), &[]).err().unwrap();
        assert!(format!("{error:#}").contains("/does/not/exist"), "{error:#}");
    }

    #[test]
    fn a_judge_that_is_not_asked_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pid");
        let script = format!("echo $$ >{}; echo '{READY}'; read state", path.display());
        let judge = Judge::start(Path::new("/bin/sh"), &["-c".into(), script.into()]).unwrap();
        let pid: i32 = std::fs::read_to_string(path).unwrap().trim().parse().unwrap();
        let is_there = || Path::new(&format!("/proc/{pid}")).exists();
        assert!(is_there());
        drop(judge);
        assert!(!is_there(), "not even as a process that nobody has waited for");
    }
}
