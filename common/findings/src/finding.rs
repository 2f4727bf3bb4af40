//! Findings: what the examination of a link found, as one line for a person, with the evidence.

use std::fmt::Display;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::catalogue::{self, Cause, Chain, Remedy};

/// Result of the examination of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// The link works.
    Pass,
    /// The link works, and the operator should know something about it.
    Warn,
    /// The link is broken.
    Fail,
    /// The link was not examined. The finding gives the reason.
    Skip,
}

/// What the operator can do about a breakage.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[must_use]
pub struct Fix {
    /// Instructions in whole sentences.
    pub text: String,
    /// A command that carries out the fix, to be copied.
    pub command: Option<String>,
    /// Whether only root can carry out the fix.
    pub needs_root: bool,
}

impl From<Remedy> for Fix {
    fn from(remedy: Remedy) -> Self {
        let Remedy { text, command, needs_root } = remedy;
        Self { text: text.to_owned(), command: command.map(str::to_owned), needs_root }
    }
}

impl Fix {
    /// Replaces the placeholder `{name}` in its texts.
    pub fn with(self, name: &str, value: impl Display) -> Self {
        let (placeholder, value) = (format!("{{{name}}}"), value.to_string());
        let fill = |text: String| text.replace(&placeholder, &value);
        Self { text: fill(self.text), command: self.command.map(fill), ..self }
    }

    /// Returns text and command as one sentence.
    pub fn sentence(&self) -> String {
        match &self.command {
            Some(command) => format!("{}: {command}", self.text.trim_end_matches('.')),
            None => self.text.clone(),
        }
    }
}

impl From<String> for Fix {
    /// Creates a fix that no command carries out.
    fn from(text: String) -> Self {
        Self { text, command: None, needs_root: false }
    }
}

impl From<&str> for Fix {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

/// What a check reports about one link.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Finding<L> {
    /// The link that was checked.
    pub link: L,
    /// Result for the link.
    pub status: Status,
    /// What was found, in a few words: `256 MiB, echo 0.6 µs`.
    pub found: String,
    /// What should have been found, if it differs from `found`.
    pub expected: Option<String>,
    /// The cause. Every `Fail` has one, and a `Warn` may.
    pub cause: Option<Cause<L>>,
    /// What the operator can do about it.
    pub fix: Option<Fix>,
    /// Lines of evidence: paths, numbers, other programs' messages.
    pub details: Vec<String>,
    /// Time that the examination took.
    pub elapsed: Duration,
}

impl<L: Chain> Finding<L> {
    fn new(link: L, status: Status, cause: Option<Cause<L>>, found: impl Into<String>) -> Self {
        Self {
            link,
            status,
            found: found.into(),
            expected: None,
            cause,
            fix: cause.and_then(Cause::remedy).map(Fix::from),
            details: Vec::new(),
            elapsed: Duration::ZERO,
        }
    }

    /// Reports that the link works.
    pub fn pass(link: L, found: impl Into<String>) -> Self {
        Self::new(link, Status::Pass, None, found)
    }

    /// Reports that the link works with a problem.
    pub fn warn(cause: Cause<L>, found: impl Into<String>) -> Self {
        Self::new(cause.link(), Status::Warn, Some(cause), found)
    }

    /// Reports that the link works, with information that is no problem.
    pub fn notice(link: L, found: impl Into<String>) -> Self {
        Self::new(link, Status::Warn, None, found)
    }

    /// Reports that the link is broken.
    pub fn fail(cause: Cause<L>, found: impl Into<String>) -> Self {
        Self::new(cause.link(), Status::Fail, Some(cause), found)
    }

    /// Reports that the link is broken by a cause that the catalogue does not know.
    pub fn unknown(link: L, found: impl Into<String>) -> Self {
        Self::fail(Cause::unknown(link), found)
    }

    /// Reports that the link was not examined, and why.
    pub fn skip(link: L, why: impl Into<String>) -> Self {
        Self::new(link, Status::Skip, None, why)
    }

    /// Adds what should have been found.
    pub fn expected(self, expected: impl Into<String>) -> Self {
        Self { expected: Some(expected.into()), ..self }
    }

    /// Adds a fix in place of the cause's own remedy: a text, or a remedy of the catalogue.
    pub fn fix(self, fix: impl Into<Fix>) -> Self {
        Self { fix: Some(fix.into()), ..self }
    }

    /// Replaces the placeholder `{name}` in the fix.
    pub fn with(self, name: &str, value: impl Display) -> Self {
        Self { fix: self.fix.map(|fix| fix.with(name, value)), ..self }
    }

    /// Adds a line of evidence.
    pub fn detail(mut self, line: impl Into<String>) -> Self {
        self.details.push(line.into());
        self
    }

    /// Adds lines of evidence.
    pub fn details(mut self, lines: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.details.extend(lines.into_iter().map(Into::into));
        self
    }

    /// Returns a sentence that tells why the cause matters, or `None` for an unknown cause.
    pub fn why(&self) -> Option<&'static str> {
        self.cause.and_then(Cause::why)
    }

    /// Returns link and cause as scripts know them: `permission/device-permission`. Returns `None` if the
    /// link works.
    pub fn issue(&self) -> Option<String> {
        let broken = matches!(self.status, Status::Warn | Status::Fail);
        self.cause.filter(|_| broken).map(|cause| format!("{}/{}", self.link.name(), cause.id()))
    }

    /// Returns whether the link works in part: less works than there is, such as one of two devices.
    pub fn in_part(&self) -> bool {
        matches!(self.status, Status::Pass | Status::Warn) && says_less(&self.found)
    }

    /// Returns whether links that need this one can be examined.
    pub fn holds(&self) -> bool {
        matches!(self.status, Status::Pass | Status::Warn)
    }
}

/// Returns whether a text says that less works than there is: `1 of 2 devices`, or `75 % on the GPU`. What is
/// shown as a part decides, so that no verdict can disagree with the line that it stands above.
fn says_less(text: &str) -> bool {
    let words: Vec<&str> = text.split([' ', ';', ',', ':']).collect();
    let number = |word: &str| word.parse::<u64>().ok();
    words.windows(4).any(|four| match four {
        [part, "of", all, "devices"] => number(part) < number(all) && number(part).is_some(),
        [part, "%", "on", "the"] => number(part).is_some_and(|part| part < 100),
        _ => false,
    })
}

/// Returns the first prerequisite of `link` that is broken according to `findings`. A link that was not
/// examined does not count as broken.
pub fn unmet<L: Chain>(link: L, findings: &[Finding<L>]) -> Option<L> {
    let fails = |need: &L| findings.iter().any(|finding| finding.link == *need && !finding.holds());
    catalogue::entry(link).needs.iter().copied().find(fails)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_what_is_shown_as_one() {
        for text in
            ["computes on 1 of 2 devices: x", "m with 0 % on the GPU", "a; 2 of 3 devices have memory"]
        {
            assert!(says_less(text), "{text}");
        }
        for text in
            ["2 of 2 devices", "m with 100 % on the GPU", "8 GiB of 16 GiB are free", "1 of 2 names", ""]
        {
            assert!(!says_less(text), "{text}");
        }
    }
}
