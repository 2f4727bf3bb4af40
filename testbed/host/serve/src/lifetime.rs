//! How long a command serves: it says `ready` when guests can come, and stops when a signal or the end of
//! stdin tells it to.

use std::io::Write;
use std::sync::Arc;
use std::thread;

use anyhow::{Context, Result};
use serde_json::Value;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::values::Level;

/// Answers what has been done so far, at any time and from any thread.
pub(crate) type Status = Arc<dyn Fn() -> Value + Send + Sync>;

/// Logs on stderr what is at least as important as `level`.
pub(crate) fn log(level: Level) {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_max_level(level.0).init();
}

/// Has `stop` called on SIGINT or SIGTERM and, where stdin is watched, when it closes. A line `status` on
/// stdin is answered on stdout by `status`, in one line.
pub(crate) fn when_asked(
    watch_stdin: bool,
    stop: impl Fn() + Clone + Send + 'static,
    status: Status,
) -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("watch for signals")?;
    let on_signal = stop.clone();
    thread::spawn(move || {
        if signals.forever().next().is_some() {
            on_signal();
        }
    });
    if watch_stdin {
        thread::spawn(move || {
            // An error ends the wait as the end does. Any other line is ignored.
            for line in std::io::stdin().lines().map_while(Result::ok) {
                if line == "status" {
                    println!("{}", status());
                }
            }
            stop();
        });
    }
    Ok(())
}

/// Says that guests can come.
pub(crate) fn ready() -> Result<()> {
    let mut out = std::io::stdout();
    writeln!(out, "ready")?;
    out.flush().map_err(Into::into)
}
