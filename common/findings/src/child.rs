//! Runs commands that may hang or crash in a process of their own: limited in time and output, and killed
//! with everything that it started when it is over. A child that hung or died of a signal is a finding, not
//! an error.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::unistd::{Pid, setpgid};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;

use crate::busy::{self, Budget};

/// Number of bytes that are kept from the start of each stream, and as many from its end. The bytes between
/// are read and discarded, so that the child never blocks.
const KEPT: usize = 512 << 10;
/// Number of bytes of a stream that is kept in full. Of a longer one the text says how many were left out.
pub const MOST_KEPT: usize = 2 * KEPT;
/// Time to read on after a child was killed.
const GRACE: Duration = Duration::from_secs(1);
/// Interval at which `done` is called.
const PAUSE: Duration = Duration::from_millis(10);

/// Returns whether an error may be the answer of a filter of system calls. A kernel answers with them, too,
/// so that it takes a call for which none has a reason.
pub fn may_be_filtered(errno: Errno) -> bool {
    matches!(errno, Errno::EPERM | Errno::EACCES | Errno::ENOSYS)
}

/// Makes the child the leader of a process group, unless a filter of system calls refuses that. Its
/// descendants are then not ended with it.
pub fn lead_group(command: &mut Command) {
    // No group has this number, so that a kernel that may answer says EINVAL.
    let answer = setpgid(Pid::from_raw(0), Pid::from_raw(-1));
    if !answer.is_err_and(may_be_filtered) {
        command.process_group(0);
    }
}

/// How a child process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildEnd {
    /// The process exited with this code.
    Exit(i32),
    /// The process was killed by a signal that this module did not send.
    Signal(i32),
    /// The child exceeded this time limit and was killed.
    TimedOut(Duration),
}

impl ChildEnd {
    /// Returns the end of a process that this module did not kill.
    fn from_status(status: ExitStatus) -> Self {
        status.code().map_or_else(|| Self::Signal(status.signal().unwrap_or_default()), Self::Exit)
    }
}

/// Outcome of a child process.
#[derive(Clone, Debug)]
pub struct ChildOutcome {
    /// How the process ended.
    pub end: ChildEnd,
    /// Standard output of the process. Bytes that are not UTF-8 are replaced.
    pub stdout: String,
    /// Standard error of the process, decoded like `stdout`.
    pub stderr: String,
    /// Time from the start of the process to its end.
    pub elapsed: Duration,
}

/// Runs `command` for at most `limit`, which is longer on a busy machine ([`Budget`]). It leads a process
/// group of its own, which is killed when it has ended, with everything that it started.
///
/// # Errors
/// Fails if the command cannot be started or waited for.
pub async fn run_bounded(command: Command, limit: Duration) -> io::Result<ChildOutcome> {
    run_until(command, limit, &mut |_, _| false).await
}

/// Like [`run_bounded`], but ends the child when `done` returns true for its stderr and process id. A child
/// that is ended this way counts as successful.
///
/// # Errors
/// Fails as [`run_bounded`] does.
pub async fn run_until(
    mut command: Command,
    limit: Duration,
    done: &mut (dyn FnMut(&str, Option<u32>) -> bool + Send),
) -> io::Result<ChildOutcome> {
    let begin = Instant::now();
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    lead_group(&mut command);
    let mut child = command.spawn()?;
    let group = Group(child.id());
    let stdout = Stream::read(child.stdout.take());
    let stderr = Stream::read(child.stderr.take());
    let (mut budget, mut last) = (Budget::new(limit), begin);
    let end = loop {
        if let Ok(status) = tokio::time::timeout(PAUSE.min(limit), child.wait()).await {
            break ChildEnd::from_status(status?);
        }
        if done(&stderr.so_far(), child.id()) {
            break ChildEnd::Exit(0);
        }
        let now = Instant::now();
        if !budget.spend(now - last, busy::share()) {
            break ChildEnd::TimedOut(limit);
        }
        last = now;
    };
    drop(group);
    // Without a group of its own it was not ended. It may have ended itself.
    let _ = child.start_kill();
    let (stdout, stderr) = (stdout.text().await, stderr.text().await);
    Ok(ChildOutcome { end, stdout, stderr, elapsed: begin.elapsed() })
}

/// Runs `command`, which ends and cleans up when its stdin is closed. That happens at `limit`, and the
/// process then has `grace` to end. Unlike [`run_bounded`], it kills nothing before that, not even when the
/// future is dropped: the child outlives its parent for as long as it needs to clean up.
///
/// # Errors
/// Fails as [`run_bounded`] does.
pub async fn run_until_closed(
    mut command: Command,
    limit: Duration,
    grace: Duration,
) -> io::Result<ChildOutcome> {
    let begin = Instant::now();
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    lead_group(&mut command);
    let mut child = command.spawn()?;
    let stdin = child.stdin.take();
    let stdout = Stream::read(child.stdout.take());
    let stderr = Stream::read(child.stderr.take());
    let end = if let Ok(status) = tokio::time::timeout(limit, child.wait()).await {
        ChildEnd::from_status(status?)
    } else {
        drop(stdin);
        if tokio::time::timeout(grace, child.wait()).await.is_err() {
            drop(Group(child.id()));
            // See `run_until`.
            let _ = child.start_kill();
        }
        ChildEnd::TimedOut(limit)
    };
    let (stdout, stderr) = (stdout.text().await, stderr.text().await);
    Ok(ChildOutcome { end, stdout, stderr, elapsed: begin.elapsed() })
}

/// A process group, which is killed on drop.
struct Group(Option<u32>);

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(leader) = self.0.and_then(|leader| i32::try_from(leader).ok()) {
            // The group no longer exists if all its processes have ended.
            let _ = nix::sys::signal::killpg(Pid::from_raw(leader), nix::sys::signal::SIGKILL);
        }
    }
}

/// A stream that is being read.
struct Stream {
    task: tokio::task::JoinHandle<()>,
    text: Arc<Mutex<HeadAndTail>>,
}

/// Start and end of a stream, and the number of bytes between them.
#[derive(Default)]
struct HeadAndTail {
    start: Vec<u8>,
    /// End of the stream: at least the last [`KEPT`] bytes after the start, and at most twice as many.
    end: Vec<u8>,
    /// Number of discarded bytes between start and end.
    lost: usize,
}

impl HeadAndTail {
    fn take(&mut self, bytes: &[u8]) {
        let (first, rest) = bytes.split_at(bytes.len().min(KEPT - self.start.len()));
        self.start.extend_from_slice(first);
        self.end.extend_from_slice(rest);
        if self.end.len() > 2 * KEPT {
            let before = self.end.len() - KEPT;
            self.end.drain(..before);
            self.lost += before;
        }
    }

    fn text(&self) -> String {
        let spare = self.end.len().saturating_sub(KEPT);
        let (start, end) =
            (String::from_utf8_lossy(&self.start), String::from_utf8_lossy(&self.end[spare..]));
        match self.lost + spare {
            0 => start.into_owned() + &end,
            lost => format!("{start}\n[{lost} bytes left out]\n{end}"),
        }
    }
}

impl Stream {
    fn read<R: AsyncRead + Unpin + Send + 'static>(from: Option<R>) -> Self {
        let text = Arc::new(Mutex::new(HeadAndTail::default()));
        let kept = Arc::clone(&text);
        let task = tokio::spawn(async move {
            let Some(mut from) = from else { return };
            let mut buffer = vec![0; 16 << 10];
            while let Ok(bytes @ 1..) = from.read(&mut buffer).await {
                kept.lock().unwrap_or_else(PoisonError::into_inner).take(&buffer[..bytes]);
            }
        });
        Self { task, text }
    }

    /// Returns the output that has been read so far.
    fn so_far(&self) -> String {
        self.text.lock().unwrap_or_else(PoisonError::into_inner).text()
    }

    /// Returns everything that was read. It does not wait for a process outside the group that still holds
    /// the other end.
    async fn text(self) -> String {
        let _ = tokio::time::timeout(GRACE, self.task).await;
        self.text.lock().unwrap_or_else(PoisonError::into_inner).text()
    }
}

impl ChildOutcome {
    /// Describes an unsuccessful end, such as `was killed by signal 11 (SIGSEGV)`. Returns `None` if the
    /// process succeeded.
    pub fn trouble(&self) -> Option<String> {
        use nix::libc::{SIGSYS, SIGXFSZ};
        match self.end {
            ChildEnd::Exit(0) => None,
            ChildEnd::Exit(code) => Some(format!("ended with exit code {code}")),
            ChildEnd::Signal(number) => {
                let name =
                    nix::sys::signal::Signal::try_from(number).map_or("unknown", |signal| signal.as_str());
                let why = match number {
                    SIGSYS => ": a seccomp filter forbids a system call that it made",
                    SIGXFSZ => ": a file became larger than the limit on the size of files allows",
                    _ => "",
                };
                Some(format!("was killed by signal {number} ({name}){why}"))
            }
            ChildEnd::TimedOut(limit) => Some(format!("did not end in {:.1} s", limit.as_secs_f64())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
    }

    fn shell(script: &str, limit: Duration) -> ChildOutcome {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]).env("A", "1");
        block(run_bounded(command, limit)).unwrap()
    }

    const LONG: Duration = Duration::from_mins(1);

    #[test]
    fn it_ends_in_its_own_way() {
        let outcome = shell("echo out $A; echo err >&2; exit 7", LONG);
        assert_eq!((outcome.end, outcome.stdout.as_str()), (ChildEnd::Exit(7), "out 1\n"));
        assert_eq!(outcome.stderr, "err\n");
        assert_eq!(outcome.trouble().unwrap(), "ended with exit code 7");
        assert_eq!(shell("true", LONG).trouble(), None);
    }

    #[test]
    fn a_crash_is_told_with_its_signal() {
        let outcome = shell("kill -SEGV $$", LONG);
        assert_eq!(outcome.end, ChildEnd::Signal(11));
        assert_eq!(outcome.trouble().unwrap(), "was killed by signal 11 (SIGSEGV)");
    }

    #[test]
    fn what_hangs_is_killed_with_its_children_and_what_it_said_is_kept() {
        let outcome = shell("echo begun; sleep 1000 & sleep 1000", Duration::from_secs(3));
        assert!(matches!(outcome.end, ChildEnd::TimedOut(_)));
        assert_eq!(outcome.stdout, "begun\n");
    }

    #[test]
    fn one_that_has_done_what_was_wanted_is_ended() {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "echo ready >&2; sleep 1000"]);
        let done = &mut |text: &str, _: Option<u32>| text.contains("ready");
        let outcome = block(run_until(command, LONG, done)).unwrap();
        assert_eq!((outcome.end, outcome.stderr.as_str()), (ChildEnd::Exit(0), "ready\n"));
    }

    #[test]
    fn one_that_waits_for_the_end_of_its_input_may_clear_up() {
        let run = |script: &str, limit| {
            let mut command = Command::new("/bin/sh");
            command.args(["-c", script]);
            block(run_until_closed(command, limit, LONG)).unwrap()
        };
        let outcome = run("echo begun; cat; echo cleared", Duration::from_millis(200));
        assert!(matches!(outcome.end, ChildEnd::TimedOut(_)));
        assert_eq!(outcome.stdout, "begun\ncleared\n");
        assert_eq!(run("exit 3", LONG).end, ChildEnd::Exit(3));
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "sleep 1000"]);
        let short = Duration::from_millis(100);
        let outcome = block(run_until_closed(command, short, short)).unwrap();
        assert!(matches!(outcome.end, ChildEnd::TimedOut(_)), "killed, or this would not return");
    }

    #[test]
    fn one_that_leaves_the_group_is_not_waited_for() {
        let outcome = shell("setsid sleep 5 & echo done", LONG);
        assert_eq!((outcome.end, outcome.stdout.as_str()), (ChildEnd::Exit(0), "done\n"));
    }

    #[test]
    fn endless_output_is_cut_and_its_end_is_kept() {
        let outcome = shell("echo first; yes | head -c 3000000; echo last", LONG);
        assert_eq!(outcome.end, ChildEnd::Exit(0));
        assert!(outcome.stdout.len() < 2 * KEPT + 64, "{}", outcome.stdout.len());
        assert!(outcome.stdout.starts_with("first\n") && outcome.stdout.ends_with("\nlast\n"));
        assert!(outcome.stdout.contains(" bytes left out]"));
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "yes | head -c 3000000 >&2; echo ready >&2; sleep 1000"]);
        let done = &mut |text: &str, _: Option<u32>| text.contains("ready");
        assert_eq!(
            block(run_until(command, LONG, done)).unwrap().end,
            ChildEnd::Exit(0),
            "seen behind a flood"
        );
    }
}
