//! The parts of a report for programs that all checks share. Keys are only ever added to them.

use serde::Serialize;

use crate::catalogue::{self, Cause, Chain, UNKNOWN};
use crate::finding::{Finding, Fix, Status};
use crate::human::first_failure;
use crate::verdict::Verdict;

/// The first link that is broken.
#[derive(Debug, Serialize)]
pub struct FirstFailure {
    link: &'static str,
    cause: &'static str,
}

impl FirstFailure {
    /// Returns the first of these findings that is a failure.
    pub fn first<L: Chain>(findings: &[Finding<L>]) -> Option<Self> {
        first_failure(findings).map(|finding| Self {
            link: finding.link.name(),
            cause: finding.cause.map_or(UNKNOWN, Cause::id),
        })
    }
}

/// A link that was examined.
#[derive(Debug, Serialize)]
pub struct Check<'a> {
    id: &'static str,
    title: &'static str,
    status: Status,
    found: &'a str,
    expected: Option<&'a str>,
    cause: Option<&'a str>,
    why: Option<&'a str>,
    fix: Option<&'a Fix>,
    needs: Vec<&'static str>,
    details: &'a [String],
    elapsed_us: u64,
}

impl<'a> Check<'a> {
    /// Converts a finding for the JSON report.
    pub fn from_finding<L: Chain>(finding: &'a Finding<L>) -> Self {
        let link = catalogue::entry(finding.link);
        Self {
            id: link.id.name(),
            title: link.title,
            status: finding.status,
            found: &finding.found,
            expected: finding.expected.as_deref(),
            cause: finding.cause.map(Cause::id),
            why: finding.why(),
            fix: finding.fix.as_ref(),
            needs: link.needs.iter().map(|need| need.name()).collect(),
            details: &finding.details,
            elapsed_us: finding.elapsed.as_micros().try_into().unwrap_or(u64::MAX),
        }
    }
}

/// Returns the name of the verdict in the JSON report.
pub const fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Works => "works",
        Verdict::Broken => "broken",
        Verdict::Incomplete => "incomplete",
    }
}

/// Returns the headline with the first failure's command.
pub fn headline<L>(headline: String, findings: &[Finding<L>]) -> String {
    match first_failure(findings).and_then(|failure| failure.fix.as_ref()?.command.as_ref()) {
        Some(command) => format!("{} ({command})", headline.trim_end_matches('.')),
        None => headline,
    }
}
