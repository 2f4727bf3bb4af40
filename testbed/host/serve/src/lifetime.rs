//! How long a command serves: it prints `ready` when guests can connect, and stops on a signal or at the end
//! of stdin.

use std::io::Write;
use std::sync::Arc;
use std::thread;

use anyhow::{Context, Result};
use serde_json::Value;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::values::Level;

/// Returns what has been done so far, as JSON. It can be called at any time and from any thread.
pub(crate) type Status = Arc<dyn Fn() -> Value + Send + Sync>;

/// Logs events of `level` and above to stderr.
pub(crate) fn log(level: Level) {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_max_level(level.0).init();
}

/// Calls `stop` on SIGINT or SIGTERM and, if `watch_stdin` is set, when stdin closes. A line `status` on
/// stdin is answered with one line from `status` on stdout.
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
            // A read error stops the command as the end of stdin does. Other lines are ignored.
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

/// Prints `ready`: guests can connect from now on.
pub(crate) fn ready() -> Result<()> {
    let mut out = std::io::stdout();
    writeln!(out, "ready")?;
    out.flush().map_err(Into::into)
}
