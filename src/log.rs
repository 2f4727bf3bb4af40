//! The launcher's own log: silent unless asked for, by `--verbose` or by VGPU_LOG as for the shims.

use std::fmt;
use std::fs::OpenOptions;
use std::sync::Mutex;

use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::env::{VGPU_LOG, VGPU_LOG_FILE};

/// Begins to log, if that was asked for: to the file that VGPU_LOG_FILE names, else to stderr.
pub fn start(verbose: bool) {
    let asked = std::env::var(VGPU_LOG).ok().and_then(|value| level(&value));
    let Some(level) = (if verbose { Some(Level::DEBUG) } else { asked }) else { return };
    let log = tracing_subscriber::fmt().with_max_level(level).with_ansi(false).event_format(Line);
    let file = std::env::var_os(VGPU_LOG_FILE)
        .filter(|_| !verbose)
        .and_then(|path| OpenOptions::new().create(true).append(true).open(path).ok());
    match file {
        Some(file) => log.with_writer(Mutex::new(file)).init(),
        None => log.with_writer(std::io::stderr).init(),
    }
}

/// Lines as the shims write them: who, how grave, what.
struct Line;

impl<S, N> FormatEvent<S, N> for Line
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

/// What a value of VGPU_LOG asks for; the same values as in the shims.
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
