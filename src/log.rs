//! The launcher's own log: silent unless asked for, by `--verbose` or by VGPU_LOG as for the shims.
//!
//! With `--user` the file that VGPU_LOG_FILE names is opened by that user and not by root: until the rights
//! are dropped, lines wait in memory ([`open_file`]).

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
    /// Nowhere yet: the file is another user's to open.
    Waiting {
        lines: Vec<u8>,
        file: OsString,
    },
}

static SINK: Mutex<LogSink> = Mutex::new(LogSink::Stderr);

/// Starts to log, if that was asked for: to the file that VGPU_LOG_FILE names, else to stderr. `waits`: the
/// file is opened by [`open_file`], not now.
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

/// Opens the file, as the user that this process is by now, and writes what has waited for it.
pub fn open_file() {
    let Some((lines, file)) = waiting() else { return };
    match vgpu_paths::append(Path::new(&file)) {
        Ok(opened) => *sink() = LogSink::File(opened),
        Err(error) => {
            let hint = vgpu_paths::hint(&error).map(|hint| format!("\nhint: {hint}")).unwrap_or_default();
            let path = Path::new(&file).display();
            // What cannot be printed must not keep the program from starting.
            let _ = writeln!(
                io::stderr(),
                "vgpu-run: warning: the log goes to stderr: failed to open {path}: {error}{hint}"
            );
        }
    }
    let _ = SinkWriter.write_all(&lines);
}

/// Writes what still waits to stderr: this process ends before it has become the user whose file it is.
pub fn give_up() {
    if let Some((lines, _)) = waiting() {
        let _ = SinkWriter.write_all(&lines);
    }
}

/// Takes the lines that wait and the file that they wait for, if any. The sink is stderr afterwards.
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

/// Writes to the sink of that moment, a line a call.
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

/// Formats lines as the shims do: process, level, message.
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

/// Level that a value of VGPU_LOG asks for, as in the shims.
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
