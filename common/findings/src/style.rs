//! Marks and colours, according to the terminal's capabilities and the user's preferences.

use std::io::IsTerminal;

use anstyle::AnsiColor;

use crate::finding::Status;

/// When to print in colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum When {
    /// Colour is used on a terminal unless NO_COLOR is set, and wherever CLICOLOR_FORCE is set.
    #[default]
    Auto,
    /// Colour is always used.
    Always,
    /// Colour is never used.
    Never,
}

/// Capabilities of the output and the user's preferences.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Style {
    /// Whether characters beyond ASCII can be shown.
    pub unicode: bool,
    /// Whether colours are used.
    pub colour: bool,
    /// Column at which lines are wrapped; `None` if they are not wrapped.
    pub width: Option<usize>,
}

impl Style {
    /// Determines the style of standard output.
    pub fn of_stdout(when: When) -> Self {
        let get = |name: &str| std::env::var(name).ok();
        let terminal = std::io::stdout().is_terminal();
        let width = terminal_size::terminal_size_of(std::io::stdout()).map(|(width, _)| usize::from(width.0));
        Self { unicode: unicode(get), colour: colour(when, terminal, get), width: width.filter(|_| terminal) }
    }

    /// Returns the mark of a status.
    pub fn mark(self, status: Status) -> &'static str {
        match (status, self.unicode) {
            (Status::Pass, true) => "[\u{2713}]",
            (Status::Pass, false) => "[+]",
            (Status::Warn, _) => "[!]",
            (Status::Fail, true) => "[\u{2717}]",
            (Status::Fail, false) => "[x]",
            (Status::Skip, _) => "[-]",
        }
    }

    /// Returns `text` in the colour of a status.
    pub fn coloured(self, status: Status, text: &str) -> String {
        let style = match status {
            Status::Pass => AnsiColor::Green.on_default(),
            Status::Warn => AnsiColor::Yellow.on_default(),
            Status::Fail => AnsiColor::Red.on_default().bold(),
            Status::Skip => anstyle::Style::new().dimmed(),
        };
        self.styled(style, text)
    }

    /// Makes `text` bold if colours are used.
    pub fn bold(self, text: &str) -> String {
        self.styled(anstyle::Style::new().bold(), text)
    }

    /// Returns `text` in a faint colour if colours are used.
    pub fn dim(self, text: &str) -> String {
        self.styled(anstyle::Style::new().dimmed(), text)
    }

    fn styled(self, style: anstyle::Style, text: &str) -> String {
        if self.colour { format!("{style}{text}{style:#}") } else { text.to_owned() }
    }

    /// Returns a text of another program without characters that move a cursor or change a colour, or that
    /// the terminal cannot show.
    pub fn plain(self, text: &str) -> String {
        text.chars()
            .map(|letter| match letter {
                '\t' => ' ',
                '\u{b5}' if !self.unicode => 'u',
                letter if letter.is_control() => '?',
                letter if !self.unicode && !letter.is_ascii() => '?',
                letter => letter,
            })
            .collect()
    }
}

/// Returns whether the locale uses UTF-8. The first variable that is set counts, as in setlocale(3).
fn unicode(get: impl Fn(&str) -> Option<String>) -> bool {
    let set = |name: &&str| get(name).filter(|value| !value.is_empty());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].iter().find_map(set).unwrap_or_default().to_ascii_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}

/// Returns whether to use colours: <https://no-color.org>, <https://bixense.com/clicolors>.
fn colour(when: When, terminal: bool, get: impl Fn(&str) -> Option<String>) -> bool {
    let set = |name: &str| get(name).is_some_and(|value| !value.is_empty());
    let forced = get("CLICOLOR_FORCE").is_some_and(|value| !value.is_empty() && value != "0");
    match when {
        When::Always => true,
        When::Never => false,
        When::Auto if set("NO_COLOR") => false,
        When::Auto if forced => true,
        When::Auto => {
            terminal && get("CLICOLOR").as_deref() != Some("0") && get("TERM").as_deref() != Some("dumb")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with<'a>(variables: &'a [(&'a str, &'a str)]) -> impl Fn(&str) -> Option<String> + 'a {
        |name| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
    }

    #[test]
    fn locales() {
        assert!(unicode(with(&[("LANG", "C.UTF-8")])));
        assert!(unicode(with(&[("LC_ALL", ""), ("LC_CTYPE", "de_DE.utf8"), ("LANG", "C")])));
        assert!(!unicode(with(&[("LC_ALL", "C"), ("LANG", "en_US.UTF-8")])));
        assert!(!unicode(with(&[])));
    }

    #[test]
    fn colours() {
        assert!(colour(When::Auto, true, with(&[])));
        assert!(!colour(When::Auto, false, with(&[])));
        assert!(!colour(When::Auto, true, with(&[("NO_COLOR", "1")])));
        assert!(colour(When::Auto, true, with(&[("NO_COLOR", "")])));
        assert!(colour(When::Auto, false, with(&[("CLICOLOR_FORCE", "1")])));
        assert!(!colour(When::Auto, false, with(&[("CLICOLOR_FORCE", "0")])));
        assert!(!colour(When::Auto, true, with(&[("NO_COLOR", "1"), ("CLICOLOR_FORCE", "1")])));
        assert!(!colour(When::Auto, true, with(&[("TERM", "dumb")])));
        assert!(!colour(When::Auto, true, with(&[("CLICOLOR", "0")])));
        assert!(colour(When::Always, false, with(&[("NO_COLOR", "1")])));
        assert!(!colour(When::Never, true, with(&[("CLICOLOR_FORCE", "1")])));
    }

    #[test]
    fn text_of_others_cannot_steer_the_terminal() {
        let (ascii, unicode) = (Style::default(), Style { unicode: true, ..Style::default() });
        assert_eq!(unicode.plain("a\u{1b}[31mb\tc\u{7}"), "a?[31mb c?");
        assert_eq!(ascii.plain("0.6 \u{b5}s \u{2713}"), "0.6 us ?");
        assert_eq!(unicode.plain("0.6 \u{b5}s"), "0.6 \u{b5}s");
    }
}
