//! The process that walks the chain, `vgpu-run __worker walk`. It opens files that others chose, and a file
//! system that does not answer blocks it without regard to time limits. It therefore reports each step, wait
//! and finding ([`WalkMessage`]) to the process that started it ([`super::supervise`]), which continues
//! without it when time has run out. It inherits nothing but the socket, because files that a blocked process
//! holds open stay open.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use vgpu_findings::style::Style;

use super::context::CheckContext;
use super::ending::{signalled, stuck};
use super::walk::{self, WalkEvent};
use super::walk_message::{FindingRecord, PrintedReport, WalkMessage};
use crate::cli::{CheckOptions, Options};
use crate::diagnosis::{Finding, Verdict};
use crate::error::LauncherError as _;
use crate::report::redact::Redaction;
use crate::report::{CheckReport, bundle, human, json};
use crate::waits;

/// Interval at which the name of the pending operation is sent.
const TICK: Duration = Duration::from_millis(100);
/// Time reserved for the work after the walk: the lower of the first value and this fraction of the limit.
const AFTER: (Duration, u32) = (Duration::from_millis(1500), 8);

/// Walks the chain for the process at the other end of stdin, which prints the report in that style.
pub fn apart(launch: &Options, options: &CheckOptions, style: Style) -> ExitCode {
    // Whoever started it may be killed.
    if let Err(error) = set_pdeathsig(Signal::SIGTERM) {
        tracing::debug!(%error, "a death of the parent would not be noticed");
    }
    match io::stdin().as_fd().try_clone_to_owned() {
        Ok(other) => walk_and_report(launch, options, style, &Reporter::new(Some(other.into()))),
        Err(error) => stuck(&format!("failed to reach the process that waits for check: {error}")),
    }
}

/// Walks the chain and prints the report in this process. Used if no other process can be started.
pub fn here(launch: &Options, options: &CheckOptions) -> ExitCode {
    walk_and_report(launch, options, Style::of_stdout(options.color), &Reporter::new(None))
}

fn walk_and_report(launch: &Options, options: &CheckOptions, style: Style, reporter: &Reporter) -> ExitCode {
    let begin = Instant::now();
    let mut context = CheckContext::new(launch.clone(), options.clone());
    let limit = options.limit();
    context.deadline = begin + limit.saturating_sub(AFTER.0.min(limit / AFTER.1));
    let walked = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(walked(&mut context, reporter)),
        Err(error) => match walk::without_events(&options.only, &error) {
            Some(findings) => Ok(findings),
            None => return stuck(&format!("failed to begin: {error}")),
        },
    };
    let findings = match walked {
        Ok(findings) => findings,
        // As a shell says it.
        Err(number) => return ExitCode::from(128 + number),
    };
    let report = CheckReport::new(&context, findings);
    let texts =
        options.bundle.as_ref().map(|_| bundle::texts(&report, &mut context, &Redaction::of_system()));
    let shown = show(&report, launch, options, style, texts.as_ref());
    match &reporter.0 {
        None => shown.print(),
        // Whoever does not read it any more has given this walk up.
        Some(stream) => {
            say(stream, &WalkMessage::Done(shown)).map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS)
        }
    }
}

/// Walks the chain. The error is the number of a signal that ended the walk.
async fn walked(context: &mut CheckContext, reporter: &Reporter) -> Result<Vec<Finding>, u8> {
    let walk = async {
        context.load_unit().await;
        walk::walk(context, |event| reporter.event(&event)).await
    };
    // Children lead groups of their own, and a terminal's signals do not reach them: they are killed with the
    // walk.
    tokio::select! {
        // Signals first: they are waited for before the first child begins.
        biased;
        number = signalled() => Err(number),
        findings = walk => Ok(findings),
    }
}

/// Renders a report and writes its bundle, if one was requested.
pub fn show(
    report: &CheckReport,
    launch: &Options,
    options: &CheckOptions,
    style: Style,
    texts: Option<&bundle::Texts>,
) -> PrintedReport {
    let out = match (options.json, options.quiet) {
        (true, _) => json::object(report) + "\n",
        (false, true) => human::end(report, style),
        (false, false) => human::whole(report, style, launch.verbose),
    };
    let mut shown = PrintedReport { out, err: String::new(), code: report.exit(options.strict) };
    if let (Some(path), Some(texts)) = (&options.bundle, texts) {
        match bundle::write(path, texts) {
            // To stderr: what is on stdout may be read by a program.
            Ok(()) => shown.err = format!("vgpu-run: wrote {}\n", path.display()),
            Err(error) => {
                let hint = error.hint().map(|hint| format!("\nhint: {hint}")).unwrap_or_default();
                shown.err = format!("vgpu-run: {}{hint}\n", crate::error::chain(&error));
                shown.code = Verdict::Incomplete as u8;
            }
        }
    }
    shown
}

/// Sends the progress of the walk to the process that waits for it, if there is one.
struct Reporter(Option<Arc<Mutex<UnixStream>>>);

impl Reporter {
    /// Creates the reporter and starts a thread that reports pending operations, because the waiting thread
    /// cannot.
    fn new(other: Option<UnixStream>) -> Self {
        let other = other.map(|stream| Arc::new(Mutex::new(stream)));
        if let Some(stream) = other.clone() {
            // Without the thread what is waited for stays without a name.
            let _ = std::thread::Builder::new().spawn(move || {
                let mut last = None;
                loop {
                    let now = waits::now();
                    if now != last && say(&stream, &WalkMessage::Waits(now.clone())).is_err() {
                        return;
                    }
                    last = now;
                    std::thread::sleep(TICK);
                }
            });
        }
        Self(other)
    }

    fn event(&self, event: &WalkEvent<'_>) {
        let told = match event {
            WalkEvent::Begun(link) => WalkMessage::Begun(*link),
            WalkEvent::Found(finding, context) => WalkMessage::Found {
                finding: FindingRecord::from(*finding),
                incomplete: context.incomplete.clone(),
                unanswered: context.unanswered.clone(),
            },
        };
        if let Some(stream) = &self.0 {
            // Whoever does not read it any more has given this walk up.
            let _ = say(stream, &told);
        }
    }
}

fn say(stream: &Mutex<UnixStream>, told: &WalkMessage) -> io::Result<()> {
    let line = serde_json::to_string(told)? + "\n";
    stream.lock().unwrap_or_else(PoisonError::into_inner).write_all(line.as_bytes())
}
