//! The shims' log, which is silent unless `VGPU_LOG` is set. The variable names a level: `error`, `warn`,
//! `info` or `debug`; any other value but `0` and `off` means `info`. Lines go to stderr, or are appended to
//! the file that `VGPU_LOG_FILE` names. The one exception is [`alarm`]. The file may be in a directory where
//! other users can write, so it is opened with care.

use std::fmt::Arguments;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Error = 1,
    Warn,
    Info,
    Debug,
}

struct Sink {
    level: Level,
    file: Option<File>,
}

fn sink() -> Option<&'static Sink> {
    static SINK: OnceLock<Option<Sink>> = OnceLock::new();
    SINK.get_or_init(|| {
        let value = std::env::var("VGPU_LOG").ok()?;
        let level = match value.as_str() {
            off if is_off(off) => return None,
            "error" => Level::Error,
            "warn" => Level::Warn,
            "debug" | "trace" => Level::Debug,
            _ => Level::Info,
        };
        let file = std::env::var_os("VGPU_LOG_FILE").and_then(|path| file(Path::new(&path)));
        Some(Sink { level, file })
    })
    .as_ref()
}

/// Returns whether a value of `VGPU_LOG` requests silence.
fn is_off(value: &str) -> bool {
    matches!(value, "" | "0" | "off")
}

/// Opens the log file. If it cannot be opened, or another user may have created it, the log goes to stderr,
/// which says so.
fn file(path: &Path) -> Option<File> {
    vgpu_paths::append(path)
        .inspect_err(|error| {
            let hint = vgpu_paths::hint(error).map(|hint| format!(" {hint}")).unwrap_or_default();
            refused(format_args!("failed to open {}: {error}.{hint}", path.display()));
        })
        .ok()
}

/// Prints to stderr the reason why the log does not go to its file.
fn refused(why: Arguments<'_>) {
    let line = format!("vgpu[{}] warn: the log goes to stderr: {why}\n", std::process::id());
    // A log that cannot be written must not disturb the program it runs in.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

fn write(level: Level, name: &str, text: Arguments<'_>) {
    let Some(sink) = sink() else { return };
    if level > sink.level {
        return;
    }
    // One write a line, so that lines of several processes do not mix.
    let line = format!("vgpu[{}] {name}: {text}\n", std::process::id());
    // A log that cannot be written must not disturb the program it runs in.
    let _ = match &sink.file {
        Some(file) => (&*file).write_all(line.as_bytes()),
        None => std::io::stderr().write_all(line.as_bytes()),
    };
}

/// Logs a failure that the caller will see.
pub fn error(text: Arguments<'_>) {
    write(Level::Error, "error", text);
}

/// Logs an event that an operator should know of.
pub fn warn(text: Arguments<'_>) {
    write(Level::Warn, "warn", text);
}

/// Logs an important step of normal operation.
pub fn info(text: Arguments<'_>) {
    write(Level::Info, "info", text);
}

/// Logs a detail of normal operation.
pub fn debug(text: Arguments<'_>) {
    write(Level::Debug, "debug", text);
}

/// Logs a warning that the program's user must see although nobody asked for a log: otherwise only CUDA's
/// error code would be visible, described by a program that knows nothing of this device. The first of the
/// process is also printed to stderr, unless `VGPU_LOG=off`.
pub fn alarm(text: Arguments<'_>) {
    static SAID: AtomicBool = AtomicBool::new(false);
    warn(text);
    let off = std::env::var("VGPU_LOG").is_ok_and(|value| is_off(&value));
    let logged = sink().is_some_and(|sink| sink.file.is_none() && sink.level >= Level::Warn);
    if off || logged || SAID.swap(true, Ordering::Relaxed) || !stderr_takes_a_line() {
        return;
    }
    let line = format!("vgpu-run: {text}\n");
    // If nobody reads stderr, the line need not be written.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// Returns whether a line can be written to stderr without waiting for a reader, and without SIGPIPE, which
/// kills a program whose reader is gone. A pipe that is ready takes 4096 bytes (poll(2), pipe(7)).
fn stderr_takes_a_line() -> bool {
    let mut stderr = libc::pollfd { fd: libc::STDERR_FILENO, events: libc::POLLOUT, revents: 0 };
    // SAFETY: one live structure; with a timeout of 0 the call returns at once.
    let ready = unsafe { libc::poll(&raw mut stderr, 1, 0) };
    ready == 1 && stderr.revents == libc::POLLOUT
}
