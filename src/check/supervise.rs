//! Waits for the process that walks the chain ([`super::walker`]), up to the time limit of the check. This
//! process opens no file that others chose, so nothing can block it. When time has run out, it prints the
//! findings that it has received, names what did not answer, and abandons the other process.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, PipeWriter, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use signal_hook::consts::{SIGINT, SIGTERM};
use vgpu_findings::style::Style;

use super::context::CheckContext;
use super::facts::TargetProgram;
use super::progress::CheckProgress;
use super::walk_message::{PrintedReport, WalkMessage};
use super::worker::family;
use super::{child, filter, walk, walker};
use crate::cli::{CheckOptions, Options};
use crate::diagnosis::{Finding, LinkId};
use crate::program::Unfound;
use crate::program::find::NotFound;
use crate::report::redact::Redaction;
use crate::report::{CheckReport, bundle};

/// Time limit for the walking process to end everything it started.
const GRACE: Duration = Duration::from_secs(2);
/// Time limit for reaping killed processes. A process blocked in the kernel ends later.
const REAP: Duration = Duration::from_millis(300);
/// Interval at which time, signals and progress are polled.
const TICK: Duration = Duration::from_millis(50);

/// Runs the walk in another process and returns the exit code of the check.
pub fn supervise_walk(launch: &Options, options: &CheckOptions) -> ExitCode {
    let deadline = Instant::now() + options.limit();
    if let Some(finding) = filter::ending_checks() {
        return print(context(launch, options), walk::stopped(&options.only, finding), launch, options);
    }
    match start(options) {
        Ok(walk) => walk.wait(launch, options, deadline),
        Err(error) => {
            // There may be no room for another process. This process then examines what it can.
            tracing::warn!(%error, "check goes on in one process");
            walker::here(launch, options)
        }
    }
}

/// A walk that runs in another process.
struct Walk {
    process: Child,
    lines: Receiver<String>,
    errors: Errors,
    /// Number of the signal that asked this process to end; 0 if there was none.
    signal: Arc<AtomicUsize>,
    known: WalkState,
}

/// Findings and progress of a walk, as received so far.
#[derive(Default)]
struct WalkState {
    findings: Vec<Finding>,
    incomplete: Vec<String>,
    unanswered: Vec<String>,
    /// Link that is being examined, and the time since when.
    at: Option<(LinkId, Instant)>,
    waits: Option<String>,
}

/// Reason why waiting for a walk ended.
enum WalkEnd {
    /// The walk sent its report.
    Done(PrintedReport),
    /// The process ended without a report.
    Broken,
    /// A signal with this number asked this process to end.
    Signal(u8),
    /// The time limit of the check was exceeded.
    TimedOut,
}

fn start(options: &CheckOptions) -> io::Result<Walk> {
    let signal = Arc::new(AtomicUsize::new(0));
    for number in [SIGINT, SIGTERM] {
        signal_hook::flag::register_usize(number, Arc::clone(&signal), number.unsigned_abs() as usize)?;
    }
    let (own, other) = UnixStream::pair()?;
    let (tell, lines) = channel();
    let reader = BufReader::new(own);
    // Before the process: where there is no room for it, none is left behind.
    thread::Builder::new().spawn(move || {
        for line in reader.lines().map_while(Result::ok) {
            if tell.send(line).is_err() {
                return;
            }
        }
    })?;
    let (errors, end) = Errors::pass_on()?;
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let mut command = Command::new(child::OURSELVES);
    command.arg0("vgpu-run").args(["__worker", "walk"]).args(style_words(Style::of_stdout(options.color)));
    command.arg("--").args(words);
    // No descriptors are shared with this process: a process that the kernel blocks would keep them open for
    // readers.
    command.stdin(OwnedFd::from(other)).stdout(Stdio::null()).stderr(end);
    // Whatever loses its parent there becomes this process's child, and is found when it has to end.
    if let Err(error) = family::adopt() {
        tracing::debug!(%error, "orphans go to another process");
    }
    let process = command.spawn()?;
    Ok(Walk { process, lines, errors, signal, known: WalkState::default() })
}

/// Converts a style to options of `__worker walk`.
fn style_words(style: Style) -> Vec<String> {
    let flags = [("--unicode", style.unicode), ("--colour", style.colour)];
    let flags = flags.into_iter().filter(|(_, on)| *on).map(|(flag, _)| flag.to_owned());
    flags.chain(style.width.map(|width| format!("--width={width}"))).collect()
}

/// Forwards the walking process's stderr to this process's.
struct Errors(Receiver<()>);

impl Errors {
    /// Creates a pipe and starts a thread that forwards its content to stderr. Returns the pipe's writing
    /// end.
    fn pass_on() -> io::Result<(Self, PipeWriter)> {
        let (mut from, end) = io::pipe()?;
        let (tell, ended) = channel();
        thread::Builder::new().spawn(move || {
            // Nobody may want to know.
            let _ = io::copy(&mut from, &mut io::stderr());
            let _ = tell.send(());
        })?;
        Ok((Self(ended), end))
    }

    /// Waits briefly until the last output of the ending process has been forwarded.
    fn passed(&self) {
        let _ = self.0.recv_timeout(GRACE);
    }
}

impl Walk {
    /// Waits for the end of the walk or for `deadline`, and prints the report.
    fn wait(mut self, launch: &Options, options: &CheckOptions, deadline: Instant) -> ExitCode {
        let mut progress = CheckProgress::new(options.quiet);
        let end = self.follow(&mut progress, deadline);
        progress.clear();
        let ended = match end {
            WalkEnd::Done(shown) => {
                self.errors.passed();
                return shown.print();
            }
            WalkEnd::Signal(number) => return self.end(number),
            WalkEnd::TimedOut => None,
            WalkEnd::Broken => {
                let how = self.ended(GRACE).map_or_else(|| "said no more".to_owned(), how);
                let _ = writeln!(io::stderr(), "vgpu-run: the process that examines the links {how}");
                Some(how)
            }
        };
        abandon();
        self.known.report(launch, options, ended)
    }

    /// Processes messages until the walk ends, its time is up, or a signal arrives.
    fn follow(&mut self, progress: &mut CheckProgress, deadline: Instant) -> WalkEnd {
        loop {
            if let Some(number) = self.signalled() {
                return WalkEnd::Signal(number);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return WalkEnd::TimedOut;
            }
            match self.lines.recv_timeout(TICK.min(left)).map(|line| serde_json::from_str(&line)) {
                Ok(Ok(WalkMessage::Done(shown))) => return WalkEnd::Done(shown),
                Ok(Ok(told)) => self.known.apply(told),
                Ok(Err(error)) => tracing::debug!(%error, "a line is not understood"),
                Err(RecvTimeoutError::Timeout) => {}
                // A terminal's signal reaches both.
                Err(RecvTimeoutError::Disconnected) => {
                    return self.signalled().map_or(WalkEnd::Broken, WalkEnd::Signal);
                }
            }
            progress.show(self.known.at, self.known.waits.as_deref());
        }
    }

    /// Forwards a signal to the walking process, waits for its cleanup, and returns the exit code 128 plus
    /// the signal, as shells do.
    fn end(mut self, number: u8) -> ExitCode {
        // It may have ended.
        let _ = kill(Pid::from_raw(self.process.id().cast_signed()), Signal::SIGTERM);
        if self.ended(GRACE).is_none() {
            abandon();
        }
        ExitCode::from(128 + number)
    }

    /// Returns the exit status of the walking process, if it ends within that time.
    fn ended(&mut self, within: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + within;
        loop {
            let ended = self.process.try_wait().ok()?;
            if ended.is_some() || Instant::now() >= deadline {
                return ended;
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn signalled(&self) -> Option<u8> {
        u8::try_from(self.signal.load(Ordering::Relaxed)).ok().filter(|number| *number > 0)
    }
}

/// Kills all descendants of this process, without waiting for those that are blocked in the kernel.
fn abandon() {
    let left = family::end(REAP);
    if !left.is_empty() {
        tracing::debug!(?left, "held by the kernel");
    }
}

impl WalkState {
    fn apply(&mut self, told: WalkMessage) {
        match told {
            WalkMessage::Begun(link) => {
                self.findings.retain(|finding| finding.link != link);
                self.at = Some((link, Instant::now()));
            }
            WalkMessage::Waits(name) => self.waits = name,
            WalkMessage::Found { finding, incomplete, unanswered } => {
                self.findings.push(finding.into());
                (self.incomplete, self.unanswered, self.at) = (incomplete, unanswered, None);
            }
            WalkMessage::Done(_) => {}
        }
    }

    /// Prints the findings so far and what is missing. `ended` tells how the process ended that examines,
    /// if it did. A filter may have ended it.
    fn report(self, launch: &Options, options: &CheckOptions, ended: Option<String>) -> ExitCode {
        let mut context = context(launch, options);
        (context.incomplete, context.unanswered) = (self.incomplete, self.unanswered);
        let has_ended = ended.is_some();
        let at = self.at.map(|(link, since)| match ended {
            Some(how) => (link, format!("not finished: the process that examines it {how}"), since.elapsed()),
            None => (link, walk::unfinished(since.elapsed(), self.waits.as_deref()), since.elapsed()),
        });
        let mut findings = walk::given_up(&mut context, self.findings, at.as_ref(), self.waits.as_deref());
        // A unit has a filter of its own.
        if has_ended && options.service.is_none() {
            filter::tell(&mut findings, &filter::refused().calls, None);
        }
        print(context, findings, launch, options)
    }
}

/// Creates the context of a report on a walk that this process has not made.
fn context(launch: &Options, options: &CheckOptions) -> CheckContext {
    let mut context = CheckContext::new(launch.clone(), options.clone());
    // It is not looked for again: that may be what does not answer.
    let missing = NotFound::Missing(OsString::new());
    context.target = Some(TargetProgram { program: Err(Unfound::Program(missing)), ollama: None });
    context
}

/// Prints the report on these findings.
fn print(
    mut context: CheckContext,
    findings: Vec<Finding>,
    launch: &Options,
    options: &CheckOptions,
) -> ExitCode {
    let report = CheckReport::new(&context, findings);
    let texts =
        options.bundle.as_ref().map(|_| bundle::texts(&report, &mut context, &Redaction::of_system()));
    let style = Style::of_stdout(options.color);
    walker::show(&report, launch, options, style, texts.as_ref()).print()
}

/// Describes how a process ended, for messages.
fn how(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with exit code {code}"),
        (None, signal) => format!("was killed by signal {}", signal.unwrap_or_default()),
    }
}
