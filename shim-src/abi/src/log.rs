//! The shims' log. Silent unless `VGPU_LOG` names a level: `error`, `warn`, `info` or `debug`. Lines
//! go to stderr, or are appended to the file that `VGPU_LOG_FILE` names.

use std::fmt::Arguments;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::OnceLock;

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
        let level = match std::env::var("VGPU_LOG").ok()?.as_str() {
            "" | "0" | "off" => return None,
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

/// The log file. Where it cannot be opened, or somebody else may have put it there, stderr is told so and gets the log.
fn file(path: &Path) -> Option<File> {
    vgpu_paths::append(path)
        .inspect_err(|error| {
            let hint = vgpu_paths::hint(error).map(|hint| format!(" {hint}")).unwrap_or_default();
            let line = format!(
                "vgpu[{}] warn: the log goes to stderr: failed to open {}: {error}.{hint}\n",
                std::process::id(),
                path.display()
            );
            // A log that cannot be written must not disturb the program it runs in.
            let _ = std::io::stderr().write_all(line.as_bytes());
        })
        .ok()
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

/// A failure that a caller will see.
pub fn error(text: Arguments<'_>) {
    write(Level::Error, "error", text);
}

/// Something that an operator should know.
pub fn warn(text: Arguments<'_>) {
    write(Level::Warn, "warn", text);
}

/// What happens, coarsely.
pub fn info(text: Arguments<'_>) {
    write(Level::Info, "info", text);
}

/// What happens, finely.
pub fn debug(text: Arguments<'_>) {
    write(Level::Debug, "debug", text);
}
