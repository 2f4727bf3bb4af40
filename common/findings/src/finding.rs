//! What is found at a link: one line for a person, and the evidence.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::catalogue::{self, Cause, Chain};

/// How a link stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// The link holds.
    Pass,
    /// It holds, and something about it should be known.
    Warn,
    /// It is broken.
    Fail,
    /// It was not examined; the finding says why.
    Skip,
}

/// What mends it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[must_use]
pub struct Fix {
    /// What to do: a whole sentence.
    pub text: String,
    /// A command that does it, to be copied.
    pub command: Option<String>,
    /// Whether only root can do it.
    pub needs_root: bool,
}

impl Fix {
    /// Something to do that no command does.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), command: None, needs_root: false }
    }

    /// A command that does it.
    pub fn command(self, command: impl Into<String>) -> Self {
        Self { command: Some(command.into()), ..self }
    }

    /// Only root can do it.
    #[allow(clippy::wrong_self_convention, reason = "it reads as a sentence: a fix, by a command, as root")]
    pub fn as_root(self) -> Self {
        Self { needs_root: true, ..self }
    }

    /// Text and command as one sentence.
    pub fn sentence(&self) -> String {
        match &self.command {
            Some(command) => format!("{}: {command}", self.text.trim_end_matches('.')),
            None => self.text.clone(),
        }
    }
}

/// A link's outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Finding<L> {
    /// The link that was checked.
    pub link: L,
    /// How it stands.
    pub status: Status,
    /// What is there, in few words: `256 MiB, echo 0.6 µs`.
    pub found: String,
    /// What should be there, if something else.
    pub expected: Option<String>,
    /// The cause. Every `Fail` has one, and a `Warn` may.
    pub cause: Option<Cause<L>>,
    /// What mends it.
    pub fix: Option<Fix>,
    /// Evidence, a line each: paths, numbers, other programs' words.
    pub details: Vec<String>,
    /// How long it took.
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
            fix: None,
            details: Vec::new(),
            elapsed: Duration::ZERO,
        }
    }

    /// The link holds.
    pub fn pass(link: L, found: impl Into<String>) -> Self {
        Self::new(link, Status::Pass, None, found)
    }

    /// The link holds, but not as it should.
    pub fn warn(cause: Cause<L>, found: impl Into<String>) -> Self {
        Self::new(cause.link(), Status::Warn, Some(cause), found)
    }

    /// The link holds, and there is something to know about it that is no cause of trouble.
    pub fn notice(link: L, found: impl Into<String>) -> Self {
        Self::new(link, Status::Warn, None, found)
    }

    /// The link is broken.
    pub fn fail(cause: Cause<L>, found: impl Into<String>) -> Self {
        Self::new(cause.link(), Status::Fail, Some(cause), found)
    }

    /// The link is broken, and nobody foresaw how.
    pub fn unknown(link: L, found: impl Into<String>) -> Self {
        Self::fail(Cause::unknown(link), found)
    }

    /// The link was not examined, and why.
    pub fn skip(link: L, why: impl Into<String>) -> Self {
        Self::new(link, Status::Skip, None, why)
    }

    /// Says what should be there.
    pub fn expected(self, expected: impl Into<String>) -> Self {
        Self { expected: Some(expected.into()), ..self }
    }

    /// Says what mends it: a whole sentence.
    pub fn fix(self, text: impl Into<String>) -> Self {
        Self { fix: Some(Fix::new(text)), ..self }
    }

    /// Adds the command that does what [`Finding::fix`] says.
    pub fn command(mut self, command: impl Into<String>) -> Self {
        if let Some(fix) = &mut self.fix {
            fix.command = Some(command.into());
        }
        self
    }

    /// Says that only root can do what [`Finding::fix`] says.
    #[allow(clippy::wrong_self_convention, reason = "as for a fix")]
    pub fn as_root(mut self) -> Self {
        if let Some(fix) = &mut self.fix {
            fix.needs_root = true;
        }
        self
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

    /// Why it matters, if it has a cause of the catalogue.
    pub fn why(&self) -> Option<&'static str> {
        self.cause.and_then(Cause::why)
    }

    /// Its cause, as scripts know it: `permission/device-permission`.
    pub fn issue(&self) -> Option<String> {
        let broken = matches!(self.status, Status::Warn | Status::Fail);
        self.cause.filter(|_| broken).map(|cause| format!("{}/{}", self.link.name(), cause.id()))
    }

    /// Whether links that need this one can be examined.
    pub fn holds(&self) -> bool {
        matches!(self.status, Status::Pass | Status::Warn)
    }
}

/// The first link that `link` needs and that does not hold, going by these findings. One that was not looked
/// at is not in the way.
pub fn unmet<L: Chain>(link: L, findings: &[Finding<L>]) -> Option<L> {
    let fails = |need: &L| findings.iter().any(|finding| finding.link == *need && !finding.holds());
    catalogue::of(link).needs.iter().copied().find(fails)
}
