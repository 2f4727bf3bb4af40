//! Ends a check: its output, its exit code, and the signals that end it.

use std::io::{self, Write};
use std::process::ExitCode;

use crate::diagnosis::Verdict;

/// Waits for a signal that ends this process, and returns its number.
pub async fn signalled() -> u8 {
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

/// Prints `text` to standard output and returns success.
pub fn printed(text: &str) -> ExitCode {
    // Standard output may be closed. The exit code is then enough.
    let _ = io::stdout().lock().write_all(text.as_bytes());
    ExitCode::SUCCESS
}

/// Prints why check itself failed and returns the exit code of an incomplete check.
pub fn stuck(what: &str) -> ExitCode {
    let _ = writeln!(io::stderr(), "vgpu-run: {what}");
    ExitCode::from(Verdict::Incomplete as u8)
}
