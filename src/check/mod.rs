//! `vgpu-run check`: walks the chain by which Ollama finds a GPU and names the link that is broken.
//!
//! [`catalogue`] lists the links and what breaks them. [`links`] examines each, [`walk`] does so in order,
//! and [`crate::report`] prints the result. What may hang or crash runs in a process of its own ([`child`]):
//! this program as a [`worker`], or vgpu-probe ([`probe`]). Both report steps ([`messages`],
//! [`vgpu_probe_steps`]).

pub mod child;
pub mod context;
pub mod facts;
mod held;
pub mod http;
pub mod identity;
pub mod limits;
pub mod links;
pub mod messages;
pub mod probe;
pub mod refusals;
pub mod rights;
pub mod staging;
pub mod steps;
pub mod subject;
pub mod unit;
pub mod walk;
pub mod worker;

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use vgpu_findings::style::Style;

use crate::cli::{CheckOptions, Options};
use crate::diagnosis::{Verdict, catalogue};
use crate::error::LauncherError as _;
use crate::report::redact::Redaction;
use crate::report::{Report, bundle, human, json, pages};
use context::Context;

/// Runs the command.
pub fn check(launch: &Options, options: &CheckOptions) -> ExitCode {
    if options.list {
        return printed(&human::list(launch.verbose));
    }
    if let Some(link) = options.explain {
        return printed(pages::page(link));
    }
    if let (Some(finding), Some(_)) = (limits::too_low(), &options.service) {
        // They are not the unit's.
        return stuck(&format!("{}: check itself has no room", finding.found));
    }
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return stuck(&format!("failed to begin: {error}")),
    };
    let mut context = Context::new(launch.clone(), options.clone());
    let progress = Progress::new();
    let walked = runtime.block_on(async {
        let walk = async {
            context.settle().await;
            walk::walk(&mut context, |link| progress.show(catalogue::of(link).title)).await
        };
        // Children lead groups of their own, and a terminal's signals do not reach them: they are killed with
        // the walk.
        tokio::select! {
            // Signals first: they are waited for before the first child begins.
            biased;
            number = signalled() => Err(number),
            findings = walk => Ok(findings),
        }
    });
    progress.clear();
    let findings = match walked {
        Ok(findings) => findings,
        // As a shell says it.
        Err(number) => return ExitCode::from(128 + number),
    };
    let report = Report::new(&context, findings);
    let style = Style::of_stdout(options.color);
    let text = match (options.json, options.quiet) {
        (true, _) => json::object(&report) + "\n",
        (false, true) => human::end(&report, style),
        (false, false) => human::whole(&report, style, launch.verbose),
    };
    printed(&text);
    if let Some(path) = &options.bundle {
        let texts = bundle::texts(&report, &mut context, &Redaction::of_system());
        if let Err(error) = bundle::write(path, &texts) {
            let hint = error.hint().map(|hint| format!("\nhint: {hint}")).unwrap_or_default();
            return stuck(&(crate::error::chain(&error) + &hint));
        }
        // To stderr: what is on stdout may be read by a program.
        let _ = writeln!(io::stderr(), "vgpu-run: wrote {}", path.display());
    }
    ExitCode::from(report.exit(options.strict))
}

/// Waits for a signal that ends this process, and returns its number.
async fn signalled() -> u8 {
    use tokio::signal::unix::{SignalKind, signal};
    let (interrupt, terminate) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()));
    match (interrupt, terminate) {
        (Ok(mut interrupt), Ok(mut terminate)) => tokio::select! {
            _ = interrupt.recv() => 2,
            _ = terminate.recv() => 15,
        },
        // Where they cannot be waited for, they end the process themselves.
        _ => std::future::pending().await,
    }
}

fn printed(text: &str) -> ExitCode {
    // Where it goes is closed: nobody wants to know any more.
    let _ = io::stdout().lock().write_all(text.as_bytes());
    ExitCode::SUCCESS
}

fn stuck(what: &str) -> ExitCode {
    let _ = writeln!(io::stderr(), "vgpu-run: {what}");
    ExitCode::from(Verdict::Incomplete as u8)
}

/// Shows on a terminal's stderr which link is being examined.
struct Progress(indicatif::ProgressBar);

impl Progress {
    fn new() -> Self {
        // It shows nothing where stderr is no terminal.
        let bar = indicatif::ProgressBar::new_spinner();
        if !bar.is_hidden() {
            bar.enable_steady_tick(Duration::from_millis(100));
        }
        Self(bar)
    }

    fn show(&self, title: &'static str) {
        self.0.set_message(title);
    }

    fn clear(self) {
        self.0.finish_and_clear();
    }
}
