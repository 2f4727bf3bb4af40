//! A running machine: it is started, watched until its agent is ready, given commands, and ended.

use std::io::{self, BufRead, BufReader, Read};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::{Shutdown, shutdown};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::agent::message::{End, Job, Message};

/// Number of final console lines that an error quotes.
const TAIL: usize = 25;
/// Text that a kernel prints when it panics.
const PANIC: &str = "Kernel panic - not syncing";

/// Reasons why a machine failed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the texts say it")]
pub enum MachineError {
    #[error("start {program}")]
    Start { program: PathBuf, source: io::Error },
    #[error("talk to the guest")]
    Talk(#[source] io::Error),
    #[error("boot the guest: its agent was not ready after {limit:?}; the end of its console:\n{tail}")]
    Slow { limit: Duration, tail: String },
    #[error("go on: the guest's kernel panicked:\n{tail}")]
    Panic { tail: String },
    #[error("go on: QEMU ended with {status}; the end of what it and the guest's console said:\n{tail}")]
    Died { status: ExitStatus, tail: String },
    #[error("have the guest {0}")]
    Refused(String),
    #[error("run the command: not done after {limit:?}; the end of the guest's console:\n{tail}")]
    Hangs { limit: Duration, tail: String },
}

/// An event of a machine that its threads report.
enum Event {
    /// QEMU, or the guest's console, printed a line.
    Console(String),
    Agent(Message),
    /// The agent's port ended or failed; the error contains the reason.
    Broken(io::Error),
    Ended(ExitStatus),
}

/// A running virtual machine, which is killed when the value is dropped.
#[derive(Debug)]
pub struct Machine {
    process: Process,
    events: Receiver<Event>,
    agent: UnixStream,
    console: Vec<String>,
    ready: String,
    ended: Option<ExitStatus>,
}

impl std::fmt::Debug for Event {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Event")
    }
}

impl Machine {
    /// Starts the QEMU that `command` describes, with the agent's port connected to `listener`, and waits
    /// until the agent is ready.
    ///
    /// # Errors
    /// Fails if the agent is not ready within `limit`; the error contains the reason.
    pub fn boot(mut command: Command, listener: UnixListener, limit: Duration) -> Result<Self, MachineError> {
        let program = PathBuf::from(command.get_program());
        let start = |source| MachineError::Start { program: program.clone(), source };
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(start)?;
        let process = Process::from_pid(child.id()).map_err(start)?;
        let (sender, events) = mpsc::channel();
        let (out, err) = (child.stdout.take(), child.stderr.take());
        let (to, and_to) = (sender.clone(), sender.clone());
        let printers = [thread::spawn(move || print(out, &to)), thread::spawn(move || print(err, &and_to))];
        let (connected, agent) = mpsc::channel();
        let listener = Arc::new(listener);
        let (listening, speaking) = (Arc::clone(&listener), sender.clone());
        thread::spawn(move || listen(&listening, &connected, &speaking));
        thread::spawn(move || {
            let status = child.wait();
            // Its end is the last event; no further connection follows.
            for printer in printers {
                let _ = printer.join();
            }
            let _ = shutdown(&*listener, Shutdown::Both);
            let _ = status.map(|status| sender.send(Event::Ended(status)));
        });
        Self::until_ready(process, events, &agent, limit)
    }

    fn until_ready(
        process: Process,
        events: Receiver<Event>,
        agent: &Receiver<UnixStream>,
        limit: Duration,
    ) -> Result<Self, MachineError> {
        let mut watched = Watched { events: &events, console: Vec::new(), ended: None };
        let deadline = Instant::now() + limit;
        let outcome = loop {
            match watched.next(Some(deadline)) {
                Ok(Some(Message::Ready(since))) => break Ok(since),
                Ok(Some(Message::Failed(what))) => break Err(MachineError::Refused(what)),
                Ok(Some(_)) => {}
                Ok(None) => break Err(MachineError::Slow { limit, tail: tail(&watched.console) }),
                Err(error) => break Err(error),
            }
        };
        let Watched { console, ended, .. } = watched;
        // An error drops the process, which kills it.
        let ready = outcome?;
        let gone = || MachineError::Talk(io::ErrorKind::NotConnected.into());
        // An agent that is ready is connected.
        let agent = agent.try_recv().map_err(|_| gone())?;
        Ok(Self { process, events, agent, console, ready, ended })
    }

    /// Returns the time at which the agent was ready, in seconds since the kernel's start, as the kernel
    /// counts them.
    pub fn ready(&self) -> &str {
        &self.ready
    }

    /// Returns all lines that the console has shown so far.
    pub fn console(&self) -> String {
        self.console.join("\n")
    }

    /// Runs a command and copies its output to `out` and `err` as it arrives.
    ///
    /// # Errors
    /// Fails if the command cannot be run or exceeds `limit`, or if the machine ends first.
    pub fn run_job(
        &mut self,
        job: &Job,
        limit: Option<Duration>,
        out: &mut impl io::Write,
        err: &mut impl io::Write,
    ) -> Result<End, MachineError> {
        let mut watched =
            Watched { events: &self.events, console: std::mem::take(&mut self.console), ended: self.ended };
        let sent = job.send(&mut self.agent).map_err(MachineError::Talk);
        let deadline = limit.map(|limit| Instant::now() + limit);
        let outcome = sent.and_then(|()| {
            loop {
                match watched.next(deadline)? {
                    Some(Message::Stdout(bytes)) => out.write_all(&bytes).map_err(MachineError::Talk)?,
                    Some(Message::Stderr(bytes)) => err.write_all(&bytes).map_err(MachineError::Talk)?,
                    Some(Message::Ended(end)) => return Ok(end),
                    Some(Message::Failed(what)) => return Err(MachineError::Refused(what)),
                    Some(Message::Ready(_)) => {}
                    None => {
                        let limit = limit.unwrap_or_default();
                        return Err(MachineError::Hangs { limit, tail: tail(&watched.console) });
                    }
                }
            }
        });
        self.console = watched.console;
        self.ended = watched.ended;
        outcome
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // All of its files are read-only or in memory, so no shutdown is needed.
        self.process.kill();
        while self.ended.is_none() {
            match self.events.recv() {
                Ok(Event::Ended(status)) => self.ended = Some(status),
                Ok(_) => {}
                Err(_) => return,
            }
        }
    }
}

/// A process that is killed when the value is dropped. It is held by a pidfd, because its number may be
/// reused.
#[derive(Debug)]
struct Process(OwnedFd);

impl Process {
    fn from_pid(pid: u32) -> io::Result<Self> {
        let pid = Pid::from_raw(pid as i32).ok_or(io::ErrorKind::InvalidInput)?;
        Ok(Self(pidfd_open(pid, PidfdFlags::empty())?))
    }

    fn kill(&self) {
        // The process may already have ended.
        let _ = pidfd_send_signal(&self.0, Signal::KILL);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Filters the events of a machine: console lines are collected, agent messages are returned.
struct Watched<'a> {
    events: &'a Receiver<Event>,
    console: Vec<String>,
    ended: Option<ExitStatus>,
}

impl Watched<'_> {
    /// Returns the agent's next message, or `None` if none arrives before `deadline`.
    fn next(&mut self, deadline: Option<Instant>) -> Result<Option<Message>, MachineError> {
        let mut broken = None;
        loop {
            let event = match deadline {
                Some(deadline) => {
                    self.events.recv_timeout(deadline.saturating_duration_since(Instant::now()))
                }
                None => self.events.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match event {
                Ok(Event::Console(line)) => self.console.push(line),
                Ok(Event::Agent(message)) => return Ok(Some(message)),
                // QEMU's exit, which follows, explains more.
                Ok(Event::Broken(error)) => broken = Some(error),
                Ok(Event::Ended(status)) => {
                    self.ended = Some(status);
                    return Err(self.error_of(status));
                }
                Err(RecvTimeoutError::Timeout) => {
                    return broken.map_or(Ok(None), |error| Err(MachineError::Talk(error)));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(MachineError::Talk(io::ErrorKind::NotConnected.into()));
                }
            }
        }
    }

    /// Returns the error that describes why the machine ended, which quotes the end of its console.
    fn error_of(&self, status: ExitStatus) -> MachineError {
        match self.console.iter().position(|line| line.contains(PANIC)) {
            // Quote from the line with the reason, because the kernel's dump after it is longer than the
            // tail.
            Some(at) => {
                let end = self.console.len().min(at + TAIL);
                MachineError::Panic { tail: tail(&self.console[..end]) }
            }
            None => MachineError::Died { status, tail: tail(&self.console) },
        }
    }
}

/// Returns the last lines of the console.
fn tail(console: &[String]) -> String {
    console[console.len().saturating_sub(TAIL)..].join("\n")
}

/// Forwards the printed lines of a pipe as events, without trailing whitespace.
fn print(pipe: Option<impl Read>, to: &Sender<Event>) {
    let Some(pipe) = pipe else { return };
    let mut lines = BufReader::new(pipe);
    let mut line = Vec::new();
    while lines.read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
        let text = String::from_utf8_lossy(&line).trim_end().to_owned();
        line.clear();
        if to.send(Event::Console(text)).is_err() {
            return;
        }
    }
}

/// Accepts QEMU's connection and forwards the agent's messages as events.
fn listen(listener: &UnixListener, connected: &Sender<UnixStream>, to: &Sender<Event>) {
    let said = (|| {
        let (mut stream, _) = listener.accept()?;
        let _ = connected.send(stream.try_clone()?);
        while let Some(message) = Message::receive(&mut stream)? {
            if to.send(Event::Agent(message)).is_err() {
                return Ok(());
            }
        }
        Err(io::ErrorKind::UnexpectedEof.into())
    })();
    if let Err(error) = said {
        let _ = to.send(Event::Broken(error));
    }
}

/// Creates a socket in `folder` for the agent's port.
///
/// # Errors
/// Fails if the socket cannot be created.
pub fn agent_socket(folder: &Path) -> Result<(PathBuf, UnixListener), MachineError> {
    let path = folder.join("agent");
    let listener = UnixListener::bind(&path).map_err(MachineError::Talk)?;
    Ok((path, listener))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Boots a machine whose QEMU is replaced by a shell script.
    fn script(text: &str, limit: Duration) -> Result<Machine, MachineError> {
        let folder = tempfile::tempdir().unwrap();
        let (_, listener) = agent_socket(folder.path()).unwrap();
        let mut command = Command::new("sh");
        command.arg("-c").arg(text);
        Machine::boot(command, listener, limit)
    }

    #[test]
    fn each_way_not_to_boot_is_told_apart() {
        let long = Duration::from_mins(1);
        let error = script("echo before; echo why >&2; exit 3", long).unwrap_err();
        let MachineError::Died { status, tail } = error else { panic!("{error}") };
        assert!(status.code() == Some(3) && tail.contains("before") && tail.contains("why"), "{tail}");

        let text = "echo '[ 1.0] Kernel panic - not syncing: no init'; seq 100; exit 0";
        let error = script(text, long).unwrap_err();
        assert!(matches!(&error, MachineError::Panic { tail } if tail.contains("no init")), "{error}");

        let error = script("echo hello; exec sleep 1000", Duration::from_millis(300)).unwrap_err();
        assert!(matches!(&error, MachineError::Slow { .. }), "{error}");

        let folder = tempfile::tempdir().unwrap();
        let (_, listener) = agent_socket(folder.path()).unwrap();
        let error = Machine::boot(Command::new("/does/not/exist"), listener, long).unwrap_err();
        assert!(matches!(error, MachineError::Start { .. }), "{error}");
    }

    #[test]
    fn an_error_quotes_the_end() {
        let lines: Vec<String> = (0..100).map(|line| line.to_string()).collect();
        assert!(tail(&lines).starts_with("75\n") && tail(&lines[..2]) == "0\n1");
    }
}
