//! What is said while a check goes on: on a terminal which link is being examined, what is waited for and how
//! long; elsewhere a line of stderr when something takes long, and else nothing.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use crate::diagnosis::{LinkId, catalogue};

/// Time after which progress names what is waited for.
const SLOW: Duration = Duration::from_secs(1);
/// Interval of progress lines where stderr is no terminal.
const SILENT: Duration = Duration::from_secs(5);

/// Progress display of a check.
pub struct CheckProgress {
    bar: indicatif::ProgressBar,
    quiet: bool,
    /// The link of which lines were written, and for how long it had taken.
    said: Option<(LinkId, Duration)>,
}

impl CheckProgress {
    /// Shows nothing yet. `quiet`: no lines.
    pub fn new(quiet: bool) -> Self {
        // It shows nothing where stderr is no terminal.
        let bar = indicatif::ProgressBar::new_spinner();
        if !bar.is_hidden() {
            bar.enable_steady_tick(Duration::from_millis(100));
        }
        Self { bar, quiet, said: None }
    }

    /// A link is being examined since then, and waits for something.
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

    /// Whether it is time for a line.
    fn due(&mut self, link: LinkId, elapsed: Duration) -> bool {
        let last = self.said.filter(|(said, _)| *said == link).map_or(Duration::ZERO, |(_, last)| last);
        let due = elapsed >= last + SILENT;
        if due {
            self.said = Some((link, elapsed));
        }
        due
    }

    /// Shows nothing any more.
    pub fn clear(self) {
        self.bar.finish_and_clear();
    }
}

/// `Discovery: waits for llama-server --list-devices, 3 s`
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
