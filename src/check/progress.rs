//! Shows the progress of a check: on a terminal the link that is being examined, the pending operation and
//! its duration; otherwise a line on stderr only if an operation takes long.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use crate::diagnosis::{LinkId, catalogue};

/// Time after which progress names the pending operation.
const SLOW: Duration = Duration::from_secs(1);
/// Interval between progress lines if stderr is not a terminal.
const SILENT: Duration = Duration::from_secs(5);

/// Progress display of a check.
pub struct CheckProgress {
    bar: indicatif::ProgressBar,
    quiet: bool,
    /// Link of the latest line, and the time that the link had taken by then.
    said: Option<(LinkId, Duration)>,
}

impl CheckProgress {
    /// Creates a display that shows nothing yet. `quiet` suppresses lines.
    pub fn new(quiet: bool) -> Self {
        // It shows nothing where stderr is no terminal.
        let bar = indicatif::ProgressBar::new_spinner();
        if !bar.is_hidden() {
            bar.enable_steady_tick(Duration::from_millis(100));
        }
        Self { bar, quiet, said: None }
    }

    /// Shows the link that is being examined since a given time, and the pending operation.
    pub fn show(&mut self, at: Option<(LinkId, Instant)>, waits: Option<&str>) {
        let Some((link, since)) = at else { return };
        let elapsed = since.elapsed();
        if !self.bar.is_hidden() {
            self.bar.set_message(words(link, elapsed, waits));
        } else if !self.quiet && self.due(link, elapsed) {
            // Nobody may want to know.
            let _ = writeln!(io::stderr(), "vgpu-run: check: {}", words(link, elapsed, waits));
        }
    }

    /// Returns whether the next line is due.
    fn due(&mut self, link: LinkId, elapsed: Duration) -> bool {
        let last = self.said.filter(|(said, _)| *said == link).map_or(Duration::ZERO, |(_, last)| last);
        let due = elapsed >= last + SILENT;
        if due {
            self.said = Some((link, elapsed));
        }
        due
    }

    /// Removes the display.
    pub fn clear(self) {
        self.bar.finish_and_clear();
    }
}

/// Formats the progress, such as `Discovery: waits for llama-server --list-devices, 3 s`.
fn words(link: LinkId, elapsed: Duration, waits: Option<&str>) -> String {
    let title = catalogue::entry(link).title;
    match waits {
        _ if elapsed < SLOW => title.to_owned(),
        Some(name) => format!("{title}: waits for {name}, {} s", elapsed.as_secs()),
        None => format!("{title}, {} s", elapsed.as_secs()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_long_is_named() {
        let second = Duration::from_secs(1);
        assert!(!words(LinkId::Truth, second / 2, Some("ollama serve")).contains("waits"));
        let slow = words(LinkId::Truth, second * 7, Some("ollama serve"));
        assert!(slow.ends_with(": waits for ollama serve, 7 s"), "{slow}");
    }

    #[test]
    fn lines_are_rare() {
        let mut progress = CheckProgress::new(false);
        let lines = |progress: &mut CheckProgress, link| {
            (0..120).filter(|tick| progress.due(link, Duration::from_millis(100) * *tick)).count()
        };
        assert_eq!(lines(&mut progress, LinkId::Discovery), 2);
        assert_eq!(lines(&mut progress, LinkId::Truth), 2);
    }
}
