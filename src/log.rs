//! The launcher's own log. It is off by default; `--verbose` or VGPU_LOG turn it on, as for the shims.
//!
//! With `--user`, that user opens the file that VGPU_LOG_FILE names, rather than root. Until privileges are
//! dropped, lines are kept in memory ([`open_file`]).

use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::env::{VGPU_LOG, VGPU_LOG_FILE};

/// Destination of log lines.
enum LogSink {
    Stderr,
    File(File),
    /// Lines are kept in memory, because the file is opened only after privileges are dropped.
    Waiting {
        lines: Vec<u8>,
        file: OsString,
    },
}

static SINK: Mutex<LogSink> = Mutex::new(LogSink::Stderr);

/// Starts logging if the user requested it: to the file that VGPU_LOG_FILE names, otherwise to stderr. With
/// `waits`, the file is opened later by [`open_file`].
pub fn start(verbose: bool, waits: bool) {
    let asked = std::env::var(VGPU_LOG).ok().and_then(|value| level(&value));
    let Some(level) = (if verbose { Some(Level::DEBUG) } else { asked }) else { return };
    let log = tracing_subscriber::fmt().with_max_level(level).with_ansi(false).event_format(LineFormat);
    if let Some(file) = std::env::var_os(VGPU_LOG_FILE).filter(|_| !verbose) {
        *sink() = LogSink::Waiting { lines: Vec::new(), file };
        if !waits {
            open_file();
        }
    }
    log.with_writer(|| SinkWriter).init();
}

/// Opens the log file as the current user, and writes the lines that were kept in memory.
pub fn open_file() {
    let Some((lines, file)) = waiting() else { return };
    match vgpu_paths::append(Path::new(&file)) {
        Ok(opened) => *sink() = LogSink::File(opened),
        Err(error) => {
            let hint = vgpu_paths::hint(&error).map(|hint| format!("\nhint: {hint}")).unwrap_or_default();
            let path = Path::new(&file).display();
            // An error of printing must not keep the program from starting.
            let _ = writeln!(
                io::stderr(),
                "vgpu-run: warning: the log goes to stderr: failed to open {path}: {error}{hint}"
            );
        }
    }
    let _ = SinkWriter.write_all(&lines);
}

/// Writes the lines in memory to stderr. Called if this process ends before it becomes the user that may open
/// the file.
pub fn give_up() {
    if let Some((lines, _)) = waiting() {
        let _ = SinkWriter.write_all(&lines);
    }
}

/// Takes the lines in memory and the path of their file, if any. Later lines go to stderr.
fn waiting() -> Option<(Vec<u8>, OsString)> {
    let mut sink = sink();
    if !matches!(*sink, LogSink::Waiting { .. }) {
        return None;
    }
    match std::mem::replace(&mut *sink, LogSink::Stderr) {
        LogSink::Waiting { lines, file } => Some((lines, file)),
        _ => None,
    }
}

fn sink() -> std::sync::MutexGuard<'static, LogSink> {
    SINK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writer that looks up the current sink for each line.
struct SinkWriter;

impl Write for SinkWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut *sink() {
            LogSink::Stderr => io::stderr().write(bytes),
            LogSink::File(file) => file.write(bytes),
            LogSink::Waiting { lines, .. } => lines.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Formats lines as the shims do: process, level and message.
struct LineFormat;

impl<S, N> FormatEvent<S, N> for LineFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let level = event.metadata().level().as_str().to_ascii_lowercase();
        write!(writer, "vgpu-run[{}] {level}: ", std::process::id())?;
        context.format_fields(writer.by_ref(), event)?;
        writeln!(writer)
    }
}

/// Parses the level in a value of VGPU_LOG, as the shims do.
fn level(value: &str) -> Option<Level> {
    match value {
        "" | "0" | "off" => None,
        "error" => Some(Level::ERROR),
        "warn" => Some(Level::WARN),
        "debug" | "trace" => Some(Level::DEBUG),
        _ => Some(Level::INFO),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_those_of_the_shims() {
        assert_eq!(level(""), None);
        assert_eq!(level("off"), None);
        assert_eq!(level("warn"), Some(Level::WARN));
        assert_eq!(level("trace"), Some(Level::DEBUG));
        assert_eq!(level("1"), Some(Level::INFO));
    }
}
