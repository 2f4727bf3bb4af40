//! Writes log lines in the format of Go's slog.

use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

/// Formats a value as slog does: quoted if it is empty or contains separators.
pub fn value(text: &str) -> String {
    let plain = !text.is_empty() && text.chars().all(|c| !c.is_whitespace() && c != '"' && c != '=');
    if plain { text.to_owned() } else { format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")) }
}

/// Formats a log line, without its line feed.
fn line(level: &str, source: &str, message: &str, fields: &[(&str, &str)]) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut line =
        format!("time={} level={level} source={source} msg={}", rfc3339(now.as_secs()), value(message));
    for (name, text) in fields {
        // Writing to a String cannot fail.
        let _ = write!(line, " {name}={}", value(text));
    }
    line
}

/// Formats a UTC time. The date is computed from the days since 1970 (Howard Hinnant, "chrono-compatible
/// low-level date algorithms").
fn rfc3339(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.000Z", rest / 3600, rest / 60 % 60, rest % 60)
}

/// Writes a line of level INFO.
pub fn info(source: &str, message: &str, fields: &[(&str, &str)]) {
    eprintln!("{}", line("INFO", source, message, fields));
}

/// Writes a line of level WARN.
pub fn warn(source: &str, message: &str, fields: &[(&str, &str)]) {
    eprintln!("{}", line("WARN", source, message, fields));
}

/// Writes a line of level DEBUG, if `OLLAMA_DEBUG` is set.
pub fn debug(source: &str, message: &str, fields: &[(&str, &str)]) {
    if level() > 0 {
        eprintln!("{}", line("DEBUG", source, message, fields));
    }
}

/// Formats a command as Go does: program and arguments.
pub fn command(command: &std::process::Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}

/// Returns the level in `OLLAMA_DEBUG`. With 2, the output of children is forwarded.
pub fn level() -> u32 {
    let text = std::env::var("OLLAMA_DEBUG").unwrap_or_default();
    text.parse().unwrap_or(u32::from(text == "true"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_quoted_as_slog_does() {
        assert_eq!(value("cpu"), "cpu");
        assert_eq!(value(""), "\"\"");
        assert_eq!(value("8.0 GiB"), "\"8.0 GiB\"");
        assert_eq!(value("a=b"), "\"a=b\"");
    }

    #[test]
    fn dates() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(rfc3339(951_827_696), "2000-02-29T12:34:56.000Z");
        assert_eq!(rfc3339(1_790_000_000), "2026-09-21T14:13:20.000Z");
    }
}
